package replica

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// run feeds the table until the context ends.
func (t *table) run(ctx context.Context, cache *client.Client) {
	defer t.own.suspend()
	follower := &follower{ctx: ctx, table: t}
	for ctx.Err() == nil {
		stream, cancel := context.WithCancel(ctx)
		cache.Follow(stream, t.resource.GroupVersionResource, t.begin(cancel), follower)
		cancel()
	}
}

// begin notes how the stream is ended, and returns where it begins.
func (t *table) begin(end context.CancelFunc) client.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = end
	if t.relisting {
		return client.Position{}
	}
	return t.at
}

// nudge has a stream that could not be opened try again at once, where it was. What it tries then is not broken off.
func (t *table) nudge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed {
		t.failed = false
		t.end()
	}
}

// fail notes that the stream could not be opened, or that it is open.
func (t *table) fail(failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = failed
}

// restart has the stream begin anew, with a list.
func (t *table) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.relisting = true
	t.end()
}
