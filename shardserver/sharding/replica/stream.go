package replica

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// run keeps the table up to date until the context ends.
func (t *table) run(ctx context.Context, cache *client.Client) {
	defer t.own.suspend()
	t.mu.Lock()
	from := t.at
	if t.relisting {
		from = client.Position{}
	}
	reflector := cache.NewReflector(t.resource.GroupVersionResource, from, &follower{ctx: ctx, table: t})
	t.reflector = reflector
	t.mu.Unlock()
	reflector.Run(ctx)
}

// retryNow ends the backoff of a reflector that is disconnected.
func (t *table) retryNow() {
	t.mu.RLock()
	reflector := t.reflector
	t.mu.RUnlock()
	if reflector != nil {
		reflector.RetryNow()
	}
}

// relist makes the reflector list anew.
func (t *table) relist() {
	t.mu.Lock()
	t.relisting = true
	reflector := t.reflector
	t.mu.Unlock()
	if reflector != nil {
		reflector.Relist()
	}
}
