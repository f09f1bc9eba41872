// Package garbage removes from a cache what shards published that are not there any more. Shards take back their own
// objects as long as they live; this is for those that do not.
//
// It runs in every replica: what it does is done once, and changes nothing the second time.
package garbage

import (
	"context"
	"fmt"
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

// RootShard is the shard whose word about which shards there are counts.
const RootShard = "root"

// maxInterval bounds the time between two looks, however long a shard may be silent.
const maxInterval = time.Minute

// Collector looks for shards that are gone.
type Collector struct {
	backend         *store.Backend
	shards, reports *store.Store
	silence         time.Duration
	now             func() time.Time
	// seen holds when each shard without a Shard object was first seen so, and how its report was then.
	seen map[string]observation
}

type observation struct {
	since time.Time
	beat  string
}

// New returns the collector of a cache. shards and reports are the stores of client.Shards and client.Reports; silence is
// how long a shard may be silent after its Shard object is gone.
func New(backend *store.Backend, shards, reports *store.Store, silence time.Duration) *Collector {
	return &Collector{backend: backend, shards: shards, reports: reports, silence: silence, now: time.Now, seen: map[string]observation{}}
}

// Run looks until the context ends.
func (c *Collector) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Looking for garbage in the cache failed; another try follows")
		}
	}, min(c.silence/10, maxInterval), 0.1, true)
}

// state is what a cache says about its shards.
type state struct {
	// present are the shards that have objects, registered those that the root shard knows.
	present, registered sets.Set[string]
	// trusted tells whether registered is all there is: the root shard has published everything.
	trusted bool
	// beats tell one report of a shard from another. A shard without a report has none.
	beats map[string]string
}

func (c *Collector) pass(ctx context.Context) error {
	parts, err := c.backend.Parts(ctx)
	if err != nil {
		return err
	}
	if err := c.count(ctx, parts); err != nil {
		return err
	}
	now, err := c.read(ctx, parts)
	if err != nil {
		return err
	}
	for _, shard := range sets.List(c.gone(now)) {
		if err := c.remove(ctx, shard, parts); err != nil {
			return err
		}
		delete(c.seen, shard)
	}
	return nil
}

// gone returns the shards whose objects are garbage by now, and remembers those that may become it.
func (c *Collector) gone(now state) sets.Set[string] {
	seen, result := map[string]observation{}, sets.New[string]()
	for shard := range now.present {
		if shard == RootShard || !now.trusted || now.registered.Has(shard) {
			continue
		}
		was, ok := c.seen[shard]
		if !ok || was.beat != now.beats[shard] {
			was = observation{since: c.now(), beat: now.beats[shard]}
		}
		seen[shard] = was
		if c.now().Sub(was.since) >= c.silence {
			result.Insert(shard)
		}
	}
	c.seen = seen
	return result
}

func (c *Collector) read(ctx context.Context, parts []store.Part) (state, error) {
	s := state{present: sets.New[string](), registered: sets.New[string](), beats: map[string]string{}}
	for _, part := range parts {
		s.present.Insert(part.Shard)
	}
	// Reports first: a report that says complete must not speak of a state later than that of the Shard objects.
	err := each(ctx, c.reports, scope.Scope{Shard: scope.AllShards, Cluster: logicalcluster.Wildcard}, func(report *unstructured.Unstructured) {
		shard := report.GetAnnotations()[client.ShardAnnotation]
		if report.GetName() != shard {
			return
		}
		s.beats[shard] = report.GetResourceVersion()
		if complete, _, _ := unstructured.NestedBool(report.Object, "spec", "complete"); complete && shard == RootShard {
			s.trusted = true
		}
	})
	if err != nil {
		return state{}, fmt.Errorf("reading the reports of shards: %w", err)
	}
	err = each(ctx, c.shards, scope.Scope{Shard: RootShard, Cluster: logicalcluster.Root}, func(shard *unstructured.Unstructured) {
		s.registered.Insert(shard.GetName())
	})
	if err != nil {
		return state{}, fmt.Errorf("reading which shards there are: %w", err)
	}
	return s, nil
}

func (c *Collector) remove(ctx context.Context, shard string, parts []store.Part) error {
	var removed int64
	for _, part := range parts {
		if part.Shard != shard {
			continue
		}
		count, err := c.backend.Remove(ctx, part)
		if err != nil {
			return err
		}
		removed += count
	}
	metrics.RemovedShards.Inc()
	klog.InfoS("Removed what a shard had published that is gone", "shard", shard, "objects", removed)
	return nil
}

// count says in metrics what each shard has.
func (c *Collector) count(ctx context.Context, parts []store.Part) error {
	metrics.Objects.Reset()
	for _, part := range parts {
		count, err := c.backend.Count(ctx, part)
		if err != nil {
			return err
		}
		metrics.Objects.With(metrics.ObjectLabels(part)).Add(float64(count)) // those of users add up
	}
	metrics.Bytes.Reset()
	for holder, amount := range c.backend.Usage() {
		metrics.Bytes.WithLabelValues(holder.Shard, "present").Add(float64(amount.Bytes)) // with those of users
		metrics.Bytes.WithLabelValues(holder.Shard, "replaced").Add(float64(amount.Replaced))
	}
	return nil
}

func each(ctx context.Context, of *store.Store, in scope.Scope, visit func(*unstructured.Unstructured)) error {
	list, err := of.List(scope.With(ctx, in), &internalversion.ListOptions{})
	if err != nil {
		return err
	}
	return meta.EachListItem(list, func(obj runtime.Object) error {
		visit(obj.(*unstructured.Unstructured))
		return nil
	})
}
