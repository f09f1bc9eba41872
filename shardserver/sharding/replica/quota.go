package replica

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// quota counts the objects kept of each other shard. It keeps a shard that publishes without limit, by accident or on
// purpose, from filling the memory of all others. A shard is removed with its last object.
type quota struct {
	// limit is how many objects of one shard are kept; 0: no limit.
	limit int

	mu     sync.Mutex
	counts map[string]int
	// exceeded are the shards that have exceeded the limit and not gone back to 90 % of it since.
	exceeded map[string]bool
}

func newQuota(limit int) *quota {
	return &quota{limit: limit, counts: map[string]int{}, exceeded: map[string]bool{}}
}

// add counts added objects, or removed ones if negative.
func (q *quota) add(shard string, objects int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.counts[shard] += objects; q.counts[shard] == 0 {
		delete(q.counts, shard)
	}
}

// empty returns whether no object of a shard is kept.
func (q *quota) empty(shard string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts[shard] == 0
}

// exceeds returns whether one more object of a shard exceeds the limit, and whether this is the first.
func (q *quota) exceeds(shard string) (exceeded, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit == 0 || q.counts[shard] < q.limit {
		return false, false
	}
	first = !q.exceeded[shard]
	q.exceeded[shard] = true
	return true, first
}

// hasRoom returns whether a shard is so far below the limit again that a relist is worthwhile.
func (q *quota) hasRoom(shard string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	hasRoom := q.counts[shard] <= q.limit-q.limit/10
	if hasRoom {
		delete(q.exceeded, shard)
	}
	return hasRoom
}

// exceedsQuota returns whether an object of another shard must be dropped. From then on the store is not synced while
// the shard is registered: any absent object may be a dropped one. Callers must hold mu.
func (s *store) exceedsQuota(ctx context.Context, key client.Key) bool {
	exceeded, first := s.informer.quota.exceeds(key.Shard)
	if !exceeded {
		return false
	}
	gr := s.resource.GroupResource()
	if first {
		klog.FromContext(ctx).Error(errOverQuota(key.Shard), "A shard has published more objects than its quota: its absent objects are treated as unknown. Raise --shard-max-objects-of-another on all shards, or delete its Shard object",
			"shard", key.Shard, "limit", s.informer.quota.limit, "resource", gr, "object", key)
	}
	overQuotaObjects.WithLabelValues(key.Shard).Inc()
	if s.overQuota == nil {
		s.overQuota = map[string]bool{}
	}
	s.overQuota[key.Shard] = true
	if s.notSynced == nil {
		s.notSynced = errOverQuota(key.Shard)
		s.informer.markDirty(gr, client.Key{})
	}
	return true
}

// quotaError returns an error if objects of a registered shard were dropped. Callers must hold mu.
func (s *store) quotaError(ctx context.Context) error {
	if len(s.overQuota) == 0 {
		return nil
	}
	registered, err := s.informer.registered(ctx, s.at)
	if err != nil {
		return err
	}
	for shard := range s.overQuota {
		if _, exists := registered[shard]; exists {
			return errOverQuota(shard)
		}
	}
	return nil
}

func errOverQuota(shard string) error {
	return fmt.Errorf("shard %q has published more objects than the quota of one shard", shard)
}

// quotaFreed returns whether dropped objects may be stored now.
func (s *store) quotaFreed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.relisting {
		return false
	}
	for shard := range s.overQuota {
		if s.informer.quota.hasRoom(shard) {
			return true
		}
	}
	return false
}
