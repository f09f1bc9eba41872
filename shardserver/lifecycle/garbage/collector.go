// Package garbage deletes objects whose owners are gone, in all logical clusters, with the rules of upstream's garbage
// collector: background, foreground and orphaning deletion, blocking dependents, owners in the same namespace or in
// none. Owners and dependents are in one logical cluster; a reference is looked up only there.
//
// It keeps only objects that have owners or wait for their dependents. That is enough because the watch caches
// report whether an owner exists. The graph is rebuilt from the storages' lists when the process starts.
//
// Deletion of the content of namespaces, logical clusters and definitions does not belong here.
package garbage

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// workers is the number of objects that are processed concurrently, over all logical clusters.
	workers = 20
	// objectTimeout bounds the processing of one object.
	objectTimeout = 2 * time.Minute
	// A failed object is retried after retryBase, which doubles up to retryMax. Objects with an owner of a kind that is
	// not served are retried forever.
	retryBase = 20 * time.Millisecond
	retryMax  = 2 * time.Minute
	// orphanDelay is the delay between the start of an orphaning deletion and the listing of the dependents, and
	// syncDelay the delay of a deletion that requires all dependents while storages are being listed.
	orphanDelay = 250 * time.Millisecond
	syncDelay   = 250 * time.Millisecond
)

// Config configures a Collector.
type Config struct {
	Registry *storage.Registry
	// Metadata and Kubernetes are loopback clients for the logical cluster of the context.
	Metadata   metadata.Interface
	Kubernetes kubernetes.Interface
}

// Collector collects garbage. Its event handlers belong in an informer.Set of all storages.
type Collector struct {
	cfg        Config
	controller *controller.Typed[key]
	// synced reports whether all objects of the shard have been listed.
	synced func() bool
	owners *ownerSearch

	*graph
}

// New returns a collector for one run.
func New(cfg Config) *Collector {
	c := &Collector{cfg: cfg, synced: func() bool { return false }}
	c.owners = newOwnerSearch(cfg.Registry, c.reportInvalidNamespace)
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

// Run collects until the context ends and its workers have returned. The informers have the collector's event handlers.
func (c *Collector) Run(ctx context.Context, informers *informer.Set) {
	c.synced = informers.HasSynced
	var group sync.WaitGroup
	group.Go(func() { c.controller.Run(ctx) })
	group.Go(func() { c.owners.controller.Run(ctx) })
	group.Wait()
}

// Size returns the number of objects and of owners in the graph.
func (c *Collector) Size() (objects, owners int) { return c.size() }

// process processes one object. It returns the delay of the next attempt if no event triggers one before.
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
		return 0, nil // its deletion event triggers the next one
	}
	return 0, c.collect(ctx, n)
}
