package quota

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// InFlight tracks the requests that were charged to a quota and have not ended. Counts of objects include them: such a
// request may or may not have stored its object yet, and without it one object too many could be admitted.
//
// An entry is removed with its last request.
type InFlight struct {
	mu     sync.Mutex
	quotas map[quotaID]*charges
}

type quotaID struct {
	cluster logicalcluster.Name
	uid     types.UID
}

type charges struct {
	counts map[core.ResourceName]int64
	users  int
	// sem holds one token. Requests of one quota write its status one after the other, which is faster than failing
	// on each other's writes.
	sem chan struct{}
}

// NewInFlight returns an empty set.
func NewInFlight() *InFlight { return &InFlight{quotas: map[quotaID]*charges{}} }

// Charge runs charge for a request of the context that creates one object. If it succeeds, the object is counted until
// the context ends. A context that never ends is a defect of the caller.
func (f *InFlight) Charge(ctx context.Context, quota *core.ResourceQuota, name core.ResourceName, charge func() error) error {
	cluster, _ := logicalcluster.From(ctx)
	id := quotaID{cluster, quota.UID}
	entry := f.acquire(id, name)
	succeeded := false
	defer func() { // also after a panic
		if !succeeded {
			f.release(id, entry, name)
		}
	}()
	if err := entry.runExclusive(ctx, charge); err != nil {
		return err
	}
	succeeded = true
	context.AfterFunc(ctx, func() { f.release(id, entry, name) })
	return nil
}

// runExclusive runs a charge while no other one of the quota runs.
func (c *charges) runExclusive(ctx context.Context, charge func() error) error {
	select {
	case c.sem <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.sem }()
	return charge()
}

// Counts returns the objects of a quota that are in flight, by name.
func (f *InFlight) Counts(cluster logicalcluster.Name, quota *core.ResourceQuota) map[core.ResourceName]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.quotas[quotaID{cluster, quota.UID}]
	if entry == nil {
		return nil
	}
	counts := make(map[core.ResourceName]int64, len(entry.counts))
	for name, count := range entry.counts {
		counts[name] = count
	}
	return counts
}

// Len returns the number of quotas with requests in flight.
func (f *InFlight) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.quotas)
}

func (f *InFlight) acquire(id quotaID, name core.ResourceName) *charges {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.quotas[id]
	if entry == nil {
		entry = &charges{counts: map[core.ResourceName]int64{}, sem: make(chan struct{}, 1)}
		f.quotas[id] = entry
	}
	entry.users++
	entry.counts[name]++
	return entry
}

func (f *InFlight) release(id quotaID, entry *charges, name core.ResourceName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry.users--
	entry.counts[name]--
	if entry.users == 0 {
		delete(f.quotas, id)
	}
}
