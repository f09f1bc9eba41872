package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	shardReports    = shardingv1alpha1.Resource("shardreports")
	exportConsumers = shardingv1alpha1.Resource("exportconsumers")
	shards          = corev1alpha1.Resource("shards")
)

// believes tells whether a shard may say such a thing. The logical cluster root belongs to the root shard, and with it
// the list of all shards; others only report on themselves there, and say which of its exports they use.
func (m *Mirror) believes(resource schema.GroupResource, key client.Key) bool {
	inRoot := key.Cluster == logicalcluster.Root
	switch {
	case key.Cluster.IsSystem():
		return false
	case resource == shardReports:
		return inRoot && key.Name == key.Shard
	case resource == exportConsumers:
		return true
	case inRoot, resource == shards:
		return inRoot && key.Shard == m.cfg.Root
	}
	return true
}

// reports is what shards say of the completeness of what they have published.
type reports struct {
	mu sync.RWMutex
	// at is where the stream of reports is.
	at position
	// since is by shard.
	since map[string]completeness
	// registered are the shards that the root shard has registered, and registeredAt is where their stream is.
	registered   map[string]bool
	registeredAt position
}

// completeness is that of one shard. A report without it says that the shard is not done yet.
type completeness struct {
	// version is a resource version of the cache by which everything was there; 0: not yet.
	version uint64
	// report is the UID of the report in the cache: a report that was lost and written anew is another one.
	report types.UID
}

// replaceReports takes over what the reports in the cache say.
func (m *Mirror) replaceReports(objects []*client.Object, at position) {
	r := &m.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.since
	if r.at.incarnation != at.incarnation {
		before = nil
	}
	r.at, r.since = at, map[string]completeness{}
	for _, object := range objects {
		if m.believes(shardReports, object.Key) {
			r.since[object.Shard] = before[object.Shard].updated(object)
		}
	}
}

// report takes over what a shard says; deleted reports say nothing.
func (m *Mirror) report(object *client.Object, deleted bool) {
	if !m.believes(shardReports, object.Key) {
		return
	}
	r := &m.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if deleted {
		delete(r.since, object.Shard)
		return
	}
	r.since[object.Shard] = r.since[object.Shard].updated(object)
}

// updated returns the completeness after a report was read.
func (c completeness) updated(object *client.Object) completeness {
	var report shardingv1alpha1.ShardReport
	if err := object.Decode(&report); err != nil || !report.Spec.Complete {
		return completeness{report: object.Meta.UID}
	}
	if c.version > 0 && c.report == object.Meta.UID {
		return c // it was complete before
	}
	version, err := strconv.ParseUint(object.Meta.ResourceVersion, 10, 64)
	if err != nil {
		return completeness{report: object.Meta.UID}
	}
	return completeness{version: version, report: object.Meta.UID}
}

// vouched returns whether a shard had published everything before the stream came to a position, and whether it reports
// at all.
func (r *reports) vouched(shard string, at position) (complete, reports bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.at.listed || r.at.incarnation != at.incarnation {
		return false, true
	}
	c, reports := r.since[shard]
	return c.version > 0 && c.version <= at.version, reports
}

// complete tells whether what a stream at a position has not seen of a shard does not exist. That also holds for a shard
// which is none any more: it is not registered, and its report was cleared away.
func (m *Mirror) complete(ctx context.Context, shard string, at position) bool {
	complete, reports := m.reports.vouched(shard, at)
	if complete || reports {
		return complete
	}
	registered, err := m.registered(ctx, at)
	return err == nil && !slices.Contains(registered, shard)
}

// whyIncomplete returns why a stream at a position has not seen everything that all other shards have; nil if it has.
func (m *Mirror) whyIncomplete(ctx context.Context, at position) error {
	registered, err := m.registered(ctx, at)
	if err != nil {
		return err
	}
	for _, shard := range registered {
		if complete, _ := m.reports.vouched(shard, at); !complete && shard != m.cfg.Shard {
			return fmt.Errorf("shard %q has not said yet that everything it has is in the cache", shard)
		}
	}
	return nil
}

// registered returns the names of all shards, or why they are not known.
func (m *Mirror) registered(ctx context.Context, at position) ([]string, error) {
	if m.cfg.Shards != nil {
		return m.cfg.Shards(ctx)
	}
	r := &m.reports
	r.mu.RLock()
	defer r.mu.RUnlock()
	root := r.since[m.cfg.Root].version
	switch {
	case root == 0:
		return nil, fmt.Errorf("shard %q has not said yet that everything it has is in the cache", m.cfg.Root)
	case !r.registeredAt.listed, r.registeredAt.version < root && at.version < math.MaxUint64, r.registeredAt.incarnation != at.incarnation, r.at.incarnation != at.incarnation:
		return nil, errors.New("the list of shards is not read from the cache yet")
	}
	return slices.Collect(maps.Keys(r.registered)), nil
}

// replaceRegistered takes over which shards there are, and register one change of that.
func (m *Mirror) replaceRegistered(objects []*client.Object) {
	r := &m.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered = map[string]bool{}
	for _, object := range objects {
		if m.believes(shards, object.Key) {
			r.registered[object.Name] = true
		}
	}
}

// register is explained at replaceRegistered.
func (m *Mirror) register(object *client.Object, deleted bool) {
	if !m.believes(shards, object.Key) {
		return
	}
	r := &m.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if deleted {
		delete(r.registered, object.Name)
		return
	}
	r.registered[object.Name] = true
}

// movedTo notes how far the streams have come by which shards are judged.
func (r *reports) movedTo(resource schema.GroupResource, at position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch resource {
	case shardReports:
		r.at = at
	case shards:
		r.registeredAt = at
	}
}
