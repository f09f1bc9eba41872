package transfer

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// leaseInterval is the time by which a key may live longer, so that keys can share leases, which are expensive for etcd.
	leaseInterval = 30 * time.Second
	// keysPerLease bounds the keys that etcd deletes at once, as in the stock storage.
	keysPerLease = 1000
)

// expiry returns the time at which a lease ends, zero for no lease. known has the leases of earlier calls. A lease that has
// ended, whose keys a past revision has, ends now.
func (t *Transfer) expiry(ctx context.Context, lease int64, known map[int64]time.Time) (time.Time, error) {
	if lease == 0 {
		return time.Time{}, nil
	}
	if expires, ok := known[lease]; ok {
		return expires, nil
	}
	response, err := t.cfg.Client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the rest of a lease: %w", err)
	}
	// etcd reports full seconds, rounded down, and -1 for a lease that has ended.
	known[lease] = t.now().Add(time.Duration(response.TTL+1) * time.Second).UTC().Truncate(time.Millisecond)
	return known[lease], nil
}

// leases grants the leases of a Writer. Keys that expire in the same interval share them.
type leases struct {
	client *clientv3.Client
	now    func() time.Time

	mu    sync.Mutex
	byEnd map[time.Time]*sharedLease
}

type sharedLease struct {
	id   clientv3.LeaseID
	keys int
}

// at returns a lease for a key and its record that ends at the time, or up to leaseInterval later.
func (l *leases) at(ctx context.Context, expires time.Time) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := expires.UTC().Truncate(leaseInterval).Add(leaseInterval)
	if shared := l.byEnd[end]; shared != nil && shared.keys < keysPerLease {
		shared.keys += 2
		return shared.id, nil
	}
	ttl := (end.Sub(l.now()) + time.Second - 1) / time.Second
	granted, err := l.client.Grant(ctx, max(1, int64(ttl)))
	if err != nil {
		return 0, fmt.Errorf("granting a lease: %w", err)
	}
	l.byEnd[end] = &sharedLease{id: granted.ID, keys: 2}
	return granted.ID, nil
}
