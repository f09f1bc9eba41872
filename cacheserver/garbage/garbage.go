// Package garbage deletes from a cache the objects of removed shards. Running shards delete their own objects.
//
// It runs in every replica, without a lease: a deletion requires in etcd that what was observed still holds. A replica
// that is late, because its process was suspended, deletes nothing that a shard has published meanwhile.
package garbage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/metrics"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// RootShard is the shard whose Shard objects define which shards exist.
const RootShard = "root"

// rootScope is the scope of the Shard objects.
var rootScope = scope.Scope{Shard: RootShard, Cluster: logicalcluster.Root}

// maxInterval bounds the time between two collections.
const maxInterval = time.Minute

// Collector deletes the objects of removed shards.
type Collector struct {
	backend         *store.Backend
	shards, reports *store.Store
	shardTimeout    time.Duration
	now             func() time.Time
	// observations is since when each shard has had no Shard object, and its report then.
	observations map[string]observation
}

type observation struct {
	since     time.Time
	heartbeat string
}

// New returns the collector of a cache. shards and reports are the stores of client.Shards and client.Reports;
// shardTimeout is how long a shard without a Shard object may go without a report.
func New(backend *store.Backend, shards, reports *store.Store, shardTimeout time.Duration) *Collector {
	return &Collector{backend: backend, shards: shards, reports: reports, shardTimeout: shardTimeout, now: time.Now, observations: map[string]observation{}}
}

// Run collects until the context ends.
func (c *Collector) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Failed to collect garbage of the cache, will retry")
		}
	}, min(c.shardTimeout/10, maxInterval), 0.1, true)
}

// state is the observed state of all shards.
type state struct {
	// present are the shards that have objects, registered those with a Shard object of the root shard.
	present, registered sets.Set[string]
	// trusted is whether registered is complete: the root shard has published everything.
	trusted bool
	// heartbeats are the resource versions of reports. A shard without a report has none.
	heartbeats map[string]string
	// revision is that of the store when the reports were read.
	revision int64
}

func (c *Collector) collect(ctx context.Context) error {
	parts, err := c.backend.Parts(ctx)
	if err != nil {
		return err
	}
	if err := c.recordMetrics(ctx, parts); err != nil {
		return err
	}
	current, err := c.observe(ctx, parts)
	if err != nil {
		return err
	}
	for _, shard := range sets.List(c.expired(current)) {
		err := c.removeShard(ctx, shard, parts, current.revision)
		if errors.Is(err, store.ErrChanged) { // the next collection decides again
			klog.FromContext(ctx).V(2).Info("A shard without a Shard object writes again", "shard", shard, "err", err)
			continue
		}
		if err != nil {
			return err
		}
		delete(c.observations, shard)
	}
	return nil
}

// expired returns the shards whose objects are to be deleted, and records those that may become so.
func (c *Collector) expired(current state) sets.Set[string] {
	observations, result := map[string]observation{}, sets.New[string]()
	for shard := range current.present {
		if shard == RootShard || !current.trusted || current.registered.Has(shard) {
			continue
		}
		previous, ok := c.observations[shard]
		if !ok || previous.heartbeat != current.heartbeats[shard] {
			previous = observation{since: c.now(), heartbeat: current.heartbeats[shard]}
		}
		observations[shard] = previous
		if c.now().Sub(previous.since) >= c.shardTimeout {
			result.Insert(shard)
		}
	}
	c.observations = observations
	return result
}

func (c *Collector) observe(ctx context.Context, parts []store.Part) (state, error) {
	s := state{present: sets.New[string](), registered: sets.New[string](), heartbeats: map[string]string{}}
	for _, part := range parts {
		s.present.Insert(part.Shard)
	}
	// Reports first: a report that says complete must not be of a later state than the Shard objects.
	revision, err := forEach(ctx, c.reports, scope.Scope{Shard: scope.AllShards, Cluster: logicalcluster.Wildcard}, func(report *unstructured.Unstructured) {
		shard := report.GetAnnotations()[client.ShardAnnotation]
		if report.GetName() != shard {
			return
		}
		s.heartbeats[shard] = report.GetResourceVersion()
		if complete, _, _ := unstructured.NestedBool(report.Object, "spec", "complete"); complete && shard == RootShard {
			s.trusted = true
		}
	})
	if err != nil {
		return state{}, fmt.Errorf("listing the reports of shards: %w", err)
	}
	s.revision = revision
	_, err = forEach(ctx, c.shards, rootScope, func(shard *unstructured.Unstructured) {
		s.registered.Insert(shard.GetName())
	})
	if err != nil {
		return state{}, fmt.Errorf("listing the shards: %w", err)
	}
	return s, nil
}

// removeShard deletes the objects of a shard that has no Shard object and has written nothing since a revision.
func (c *Collector) removeShard(ctx context.Context, shard string, parts []store.Part, revision int64) error {
	unregistered, err := c.shards.Absent(scope.NewContext(ctx, rootScope), shard)
	if err != nil {
		return err
	}
	var removed int64
	for _, part := range parts {
		if part.Shard != shard {
			continue
		}
		count, err := c.backend.Remove(ctx, part, revision, unregistered, c.reports.UnchangedSince(shard, revision))
		if err != nil {
			return err
		}
		removed += count
	}
	metrics.RemovedShards.Inc()
	klog.InfoS("Deleted the objects of a removed shard", "shard", shard, "objects", removed)
	return nil
}

// recordMetrics sets the metrics of every shard.
func (c *Collector) recordMetrics(ctx context.Context, parts []store.Part) error {
	metrics.Objects.Reset()
	for _, part := range parts {
		count, err := c.backend.Count(ctx, part)
		if err != nil {
			return err
		}
		metrics.Objects.With(metrics.ObjectLabels(part)).Add(float64(count)) // those of users add up
	}
	metrics.Bytes.Reset()
	for key, usage := range c.backend.Usage() {
		metrics.Bytes.WithLabelValues(key.Shard, "present").Add(float64(usage.Bytes)) // with those of users
		metrics.Bytes.WithLabelValues(key.Shard, "replaced").Add(float64(usage.Replaced))
	}
	return nil
}

// forEach visits all objects of a scope, and returns the revision of the store at which they were read.
func forEach(ctx context.Context, from *store.Store, target scope.Scope, visit func(*unstructured.Unstructured)) (revision int64, err error) {
	list, err := from.List(scope.NewContext(ctx, target), &internalversion.ListOptions{})
	if err != nil {
		return 0, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	if revision, err = strconv.ParseInt(accessor.GetResourceVersion(), 10, 64); err != nil {
		return 0, fmt.Errorf("the resource version of a list: %w", err)
	}
	return revision, meta.EachListItem(list, func(obj runtime.Object) error {
		visit(obj.(*unstructured.Unstructured))
		return nil
	})
}
