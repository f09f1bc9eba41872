package replica

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// prune deletes unconfirmed objects of complete shards, and updates whether the store is synced.
func (s *store) prune(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unconfirmed > 0 && s.hasListed() {
		var gone []client.Key
		confirmed := map[string]bool{}
		s.forEach(func(e *entry) {
			if !e.unconfirmed {
				return
			}
			complete, checked := confirmed[e.shard]
			if !checked {
				complete = s.informer.complete(ctx, e.shard, s.at)
				confirmed[e.shard] = complete
			}
			if complete {
				gone = append(gone, e.key())
			}
		})
		for _, key := range gone {
			s.remove(key)
		}
	}
	if s.notSynced != nil && s.hasListed() {
		if s.notSynced = s.informer.completenessError(ctx, s.at); s.notSynced == nil {
			s.notSynced = s.quotaError(ctx)
		}
		if s.notSynced == nil {
			s.informer.markDirty(s.resource.GroupResource(), client.Key{})
			for w := range s.watchers {
				w.Stop() // watchers must list again now that absence is decisive
			}
		}
	}
}

// needed returns whether the store could be pruned or synced if its watch had reached the latest reports.
func (s *store) needed(ctx context.Context) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.hasListed() || (s.unconfirmed == 0 && s.notSynced == nil) || s.relisting {
		return false
	}
	now := latestIn(s.at)
	if s.notSynced != nil && s.informer.completenessError(ctx, now) == nil {
		return true
	}
	needed := false
	confirmed := map[string]bool{}
	s.forEach(func(e *entry) {
		if _, checked := confirmed[e.shard]; e.unconfirmed && !checked {
			confirmed[e.shard] = s.informer.complete(ctx, e.shard, now)
			needed = needed || confirmed[e.shard]
		}
	})
	return needed
}

// syncError returns why absence of an object proves nothing; nil if it does.
func (s *store) syncError() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.notSynced
}

// hasListed returns whether the store was ever listed. Callers must hold mu.
func (s *store) hasListed() bool { return s.at.ResourceVersion != "" }
