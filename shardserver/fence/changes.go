package fence

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

// unknownRevision is that of a change whose revision has not been read yet: no list is new enough.
const unknownRevision = math.MaxInt64

// changes has the revision up to which lists over all logical clusters may show another choice of them than today. A list that began
// before a change shows the choice of before, at a revision that etcd may have reached later than the LogicalCluster's: hence the
// revision is read after the change.
type changes struct {
	mu       sync.Mutex
	revision int64
	count    int
	added    chan struct{} // has an element when the revision is unknown
}

func newChanges() *changes { return &changes{added: make(chan struct{}, 1)} }

// add records a change.
func (c *changes) add() {
	c.mu.Lock()
	c.revision = unknownRevision
	c.count++
	c.mu.Unlock()
	select {
	case c.added <- struct{}{}:
	default: // run will read the revision
	}
}

// at returns a revision that is not older than the last change; 0 if there was none.
func (c *changes) at() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// run reads the revision after changes until the context ends.
func (c *changes) run(ctx context.Context, etcd clientv3.KV, key string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.added:
		}
		for !c.read(ctx, etcd, key) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepInterval):
			}
		}
	}
}

// read reads the revision, and reports whether that has succeeded. A change in between has its own turn.
func (c *changes) read(ctx context.Context, etcd clientv3.KV, key string) bool {
	c.mu.Lock()
	count := c.count
	c.mu.Unlock()
	response, err := etcd.Get(ctx, key, clientv3.WithCountOnly())
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to read the revision of etcd; lists of all logical clusters cannot be continued", "err", err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == count {
		c.revision = response.Header.Revision
	}
	return true
}
