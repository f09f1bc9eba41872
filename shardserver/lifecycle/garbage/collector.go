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
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
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
	// maxReportedPairs bounds what is remembered so that nothing is reported twice.
	maxReportedPairs = 4096
)

// Config is what a Collector needs.
type Config struct {
	Registry *storage.Registry
	// Metadata and Kubernetes write through the shard's API, to the logical cluster of the context.
	Metadata   metadata.Interface
	Kubernetes kubernetes.Interface
}

// Collector collects garbage. It is a follow.EventHandler of all storages.
type Collector struct {
	cfg        Config
	controller *controller.Typed[key]
	// synced tells whether all objects of the shard are known.
	synced func() bool
	// reported are pairs of dependent and owner of which it has been said that they live in different namespaces.
	reported *lru.Cache

	*graph
}

// New returns a collector for one run.
func New(cfg Config) *Collector {
	c := &Collector{
		cfg:      cfg,
		synced:   func() bool { return false },
		reported: lru.New(maxReportedPairs),
	}
	c.controller = controller.NewTyped(controller.Options[key]{
		Name: "garbage-collector", MaxConcurrentReconciles: workers, Timeout: objectTimeout, RetryBase: retryBase, RetryMax: retryMax,
		ClusterName: func(k key) logicalcluster.Name { return k.cluster },
		Reconcile: func(ctx context.Context, k key) (controller.Result, error) {
			after, err := c.process(ctx, k)
			return controller.Result{RequeueAfter: after}, err
		},
		IsExpected: func(err error) bool { return errors.Is(err, errUnknownKind) }, // the kind may be served later
	})
	c.graph = newGraph(c.controller.Add)
	return c
}

var _ follow.EventHandler = &Collector{}

// Run collects until the context ends and its workers have returned. The follower tells the collector of all objects.
func (c *Collector) Run(ctx context.Context, informer *follow.Informer) {
	c.synced = informer.HasSynced
	c.controller.Run(ctx)
}

// Size returns how many objects are remembered, and how many owners they name.
func (c *Collector) Size() (objects, owners int) { return c.size() }

// process does what an object needs now. It returns after which time to look again if no event tells earlier.
func (c *Collector) process(ctx context.Context, k key) (requeueAfter time.Duration, err error) {
	n, known := c.snapshot(k)
	switch {
	case !known:
		return 0, nil
	case n.waitReason == waitDependents:
		return c.deleteForeground(ctx, n)
	case n.waitReason == waitOrphaning:
		return c.orphanDependents(ctx, n)
	case n.deleting:
		return 0, nil // its end will be told of
	}
	return 0, c.collect(ctx, n)
}
