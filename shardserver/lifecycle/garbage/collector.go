// Package garbage deletes objects whose owners are gone, in all logical clusters, with the rules of upstream's garbage
// collector: background, foreground and orphaning deletion, blocking dependents, owners in the same namespace or in
// none. Owners and dependents stand in one logical cluster; what a reference names is looked up there and nowhere else.
//
// It remembers only objects that have owners, or wait for their dependents. That is enough because the watch caches
// answer whether an owner exists. All of it is rebuilt from the storages' lists when the process starts.
//
// What else deletes (namespaces, logical clusters, definitions) does not belong here.
package garbage

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// workers is how many objects are looked at once, over all logical clusters.
	workers = 20
	// objectTimeout bounds the work on one object.
	objectTimeout = 2 * time.Minute
	// A failed object is looked at again after retryBase, then twice that, and so on up to retryMax. Objects whose
	// owner's kind nobody serves stay in that circle.
	retryBase = 20 * time.Millisecond
	retryMax  = 2 * time.Minute
	// orphanDelay is how long after the beginning of an orphaning deletion the dependents are gathered, and
	// syncDelay how long a deletion that depends on knowing all dependents waits for storages that are being listed.
	orphanDelay = 250 * time.Millisecond
	syncDelay   = 250 * time.Millisecond
	// reportedPairs bounds what is remembered so that nothing is reported twice.
	reportedPairs = 4096
)

// Config is what a Collector needs.
type Config struct {
	Registry *storage.Registry
	// Metadata and Kubernetes write through the shard's API, to the logical cluster of the context.
	Metadata   metadata.Interface
	Kubernetes kubernetes.Interface
}

// Collector collects garbage. It is a follow.Listener of all storages.
type Collector struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[key]
	// synced tells whether all objects of the shard are known.
	synced func() bool
	// reported are pairs of dependent and owner of which it has been said that they live in different namespaces.
	reported *lru.Cache

	*graph
}

// New returns a collector for one run.
func New(cfg Config) *Collector {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryBase, retryMax)
	c := &Collector{
		cfg:      cfg,
		queue:    workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[key]{Name: "garbage-collector"}),
		synced:   func() bool { return false },
		reported: lru.New(reportedPairs),
	}
	c.graph = newGraph(func(k key) { c.queue.Add(k) })
	return c
}

var _ follow.Listener = &Collector{}

// Run collects until the context ends and its workers have returned. The follower tells the collector of all objects.
func (c *Collector) Run(ctx context.Context, follower *follow.Follower) {
	c.synced = follower.Synced
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	group.Wait()
}

// Size returns how many objects are remembered, and how many owners they name.
func (c *Collector) Size() (objects, owners int) { return c.size() }

func (c *Collector) next(ctx context.Context) bool {
	k, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(k)
	if ctx.Err() != nil {
		return false
	}
	again, err := c.safely(ctx, k)
	switch {
	case err == nil && again > 0:
		c.queue.AddAfter(k, again)
	case err == nil:
		c.queue.Forget(k)
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errUnknownKind), apierrors.IsConflict(err):
		// The kind may be served one day; what changed meanwhile has been, or will be, told of.
		c.queue.AddRateLimited(k)
	default:
		klog.FromContext(ctx).Error(err, "Collecting garbage failed, will retry", "cluster", k.cluster, "uid", k.uid)
		c.queue.AddRateLimited(k)
	}
	return true
}

// safely turns a panic into an error: one object that the collector cannot stand must not end the shard.
func (c *Collector) safely(ctx context.Context, k key) (again time.Duration, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(logicalcluster.With(ctx, k.cluster), objectTimeout)
	defer cancel()
	return c.process(ctx, k)
}

// process does what an object needs now. It returns after which time to look again if no event tells earlier.
func (c *Collector) process(ctx context.Context, k key) (again time.Duration, err error) {
	n, known := c.view(k)
	switch {
	case !known:
		return 0, nil
	case n.waits == forDependents:
		return c.deleteForeground(ctx, n)
	case n.waits == forOrphaning:
		return c.orphan(ctx, n)
	case n.deleting:
		return 0, nil // its end will be told of
	}
	return 0, c.collect(ctx, n)
}
