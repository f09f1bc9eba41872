package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// maxFollowings bounds the logical clusters that a replica follows for their destinations.
	maxFollowings = 10
	// followingTimeout is after how long a replica ends a following that its destination does not use.
	followingTimeout = 2 * time.Minute
	// followingWait bounds a request that waits until all values are read, so that it ends within the timeout of requests.
	followingWait = 10 * time.Second
)

// followings are what this replica of an origin follows for destinations: one for each logical cluster that is copied. They end when the
// logical cluster is handed over, when another one of the same logical cluster begins, and when no destination uses them.
type followings struct {
	transfer *transfer.Transfer
	timeout  time.Duration

	mu        sync.Mutex
	byCluster map[logicalcluster.Name]*following
}

// following is the content of a logical cluster for one attempt of a destination to copy it.
type following struct {
	id      string
	cluster logicalcluster.Name
	expiry  *time.Timer
	stop    context.CancelFunc
	// ready is closed when follower or err is set.
	ready    chan struct{}
	follower *transfer.Follower
	err      error

	mu sync.Mutex // a destination sends one request after the other
	// offered is what the last request of the destination has returned: its copy is to be equal to that.
	offered *transfer.Changes
}

func newFollowings(t *transfer.Transfer) *followings {
	return &followings{transfer: t, timeout: followingTimeout, byCluster: map[logicalcluster.Name]*following{}}
}

// begin begins to follow a logical cluster without its LogicalCluster.
func (f *followings) begin(ctx context.Context, cluster logicalcluster.Name, except transfer.Key) (*following, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byCluster[cluster] == nil && len(f.byCluster) >= maxFollowings {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("this replica of the shard gives away %d logical clusters already", maxFollowings), int(pauseInterval/time.Second))
	}
	f.end(f.byCluster[cluster])
	one := &following{id: string(uuid.NewUUID()), cluster: cluster, ready: make(chan struct{})}
	ctx, one.stop = context.WithCancel(context.WithoutCancel(ctx))
	one.expiry = time.AfterFunc(f.timeout, func() { f.forget(one) })
	f.byCluster[cluster] = one
	go func() {
		defer close(one.ready)
		one.follower, one.err = f.transfer.Follow(ctx, cluster, except)
	}()
	return one, nil
}

// get returns the following of an id, and lets it live on.
func (f *followings) get(cluster logicalcluster.Name, id string) (*following, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.byCluster[cluster]
	if one == nil || one.id != id {
		return nil, apierrors.NewConflict(migrationv1alpha1.Resource("logicalclustermigrations"), "", errors.New("this replica of the shard has no record of the copy: the destination starts again"))
	}
	one.expiry.Reset(f.timeout)
	return one, nil
}

// forget ends a following.
func (f *followings) forget(one *following) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byCluster[one.cluster] == one {
		f.end(one)
	}
}

// endFor ends the following of a logical cluster, if there is one.
func (f *followings) endFor(cluster logicalcluster.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(f.byCluster[cluster])
}

// close ends all followings.
func (f *followings) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.byCluster {
		f.end(one)
	}
}

// end ends a following, which may be nil, while mu is held.
func (f *followings) end(one *following) {
	if one == nil {
		return
	}
	delete(f.byCluster, one.cluster)
	one.expiry.Stop()
	one.stop()
	go func() {
		<-one.ready
		if one.follower != nil {
			one.follower.Close()
		}
	}()
}

// changes returns what has changed since a revision, or nil while the values are still being read.
func (f *following) changes(ctx context.Context, since int64) (*transfer.Changes, error) {
	timer := time.NewTimer(followingWait)
	defer timer.Stop()
	select {
	case <-f.ready:
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changes, err := f.follower.Changes(ctx, since)
	if err == nil {
		f.offered = changes
	}
	return changes, err
}

// compare returns how the copy of the destination differs from the content here, or "". Expired objects expire in the copy, too.
func (f *following) compare(ctx context.Context, copied transfer.Digest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offered == nil {
		return "the destination has not read what there is", nil
	}
	if difference := f.offered.Digest.Difference(copied); difference != "" {
		return difference, nil
	}
	since, err := f.follower.AllChanges(ctx, f.offered.Revision)
	switch {
	case err != nil:
		return "", err
	case len(since.Changed) > 0:
		return since.Changed[0].Resource + " has changed since the destination has read it, or was not known to this replica of the shard", nil
	case len(since.Gone) > 0 && !since.Expiring:
		return since.Gone[0].Resource + " has lost a key since the destination has read it", nil
	case len(since.Gone) == 0:
		return since.Digest.Difference(copied), nil
	}
	return "", nil
}

// storages returns those that have been compared.
func (f *following) storages() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.offered.Digest))
}
