package replica

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// sweep forgets what its shard has no more, and finds out whether everything is known by now.
func (t *table) sweep(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unseen > 0 && t.listed() {
		var gone []client.Key
		confirmed := map[string]bool{}
		t.each(func(e *entry) {
			if !e.unseen {
				return
			}
			sure, asked := confirmed[e.shard]
			if !asked {
				sure = t.mirror.complete(ctx, e.shard, t.at)
				confirmed[e.shard] = sure
			}
			if sure {
				gone = append(gone, e.key())
			}
		})
		for _, key := range gone {
			t.remove(key)
		}
	}
	if t.unknown != nil && t.listed() {
		if t.unknown = t.mirror.whyIncomplete(ctx, t.at); t.unknown == nil {
			t.unknown = t.whyRefused(ctx)
		}
		if t.unknown == nil {
			t.mirror.touch(t.resource.GroupResource(), client.Key{})
			for w := range t.watchers {
				w.Stop() // who could not decide looks at everything again
			}
		}
	}
}

// lags tells whether the table could be judged if its stream had come as far as the reports of shards.
func (t *table) lags(ctx context.Context) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.listed() || (t.unseen == 0 && t.unknown == nil) || t.relisting {
		return false
	}
	now := future(t.at)
	if t.unknown != nil && t.mirror.whyIncomplete(ctx, now) == nil {
		return true
	}
	lags := false
	confirmed := map[string]bool{}
	t.each(func(e *entry) {
		if _, asked := confirmed[e.shard]; e.unseen && !asked {
			confirmed[e.shard] = t.mirror.complete(ctx, e.shard, now)
			lags = lags || confirmed[e.shard]
		}
	})
	return lags
}

func (t *table) whyUnknown() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.unknown
}

// listed tells whether anything was heard of the cache. The lock is held.
func (t *table) listed() bool { return t.at.ResourceVersion != "" }
