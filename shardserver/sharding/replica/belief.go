package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	shardReports           = shardingv1alpha1.Resource("shardreports")
	logicalClusterRequests = shardingv1alpha1.Resource("logicalclusterrequests")
	logicalClusterReports  = shardingv1alpha1.Resource("logicalclusterreports")
	exportConsumers        = shardingv1alpha1.Resource("exportconsumers")
	shards                 = corev1alpha1.Resource("shards")
)

// believes tells whether a shard may say such a thing. The logical cluster root belongs to the root shard, and with it
// the list of all shards; others only report on themselves there, and say which of its exports they use. Nor has anything
// of another logical cluster the path of root, by which all find the exports and types that are everybody's.
func (m *Mirror) believes(resource schema.GroupResource, object *client.Object) bool {
	key, inRoot := object.Key, object.Cluster == logicalcluster.Root
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
	return object.Meta.Annotations[logicalcluster.PathAnnotationKey] != logicalcluster.Root.String()
}

// reports is what shards say of themselves, and what root says of shards: by it the absence of objects is judged.
type reports struct {
	complete client.Completeness

	mu sync.RWMutex
	// reporting are the shards that have a report, and at is where the stream of reports is.
	reporting map[string]bool
	at        client.Position
	// registered are the shards that the root shard has registered, and whether each has ever reported; registeredAt is
	// where their stream is.
	registered   map[string]bool
	registeredAt client.Position
}

// replace takes over the lists of reports and of shards, change one change of them.
func (r *reports) replace(m *Mirror, resource schema.GroupResource, objects []*client.Object, at client.Position) {
	if resource != shardReports && resource != shards {
		return
	}
	names := map[string]bool{}
	believed := make([]*client.Object, 0, len(objects))
	for _, object := range objects {
		if m.believes(resource, object) {
			names[object.Name] = resource == shardReports || reportedOnce(object)
			believed = append(believed, object)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if resource == shards {
		r.registered, r.registeredAt = names, at
		return
	}
	r.complete.OnReplace(believed, at)
	r.reporting, r.at = names, at
}

// change is explained at replace.
func (r *reports) change(m *Mirror, resource schema.GroupResource, change watch.EventType, object *client.Object, at client.Position) {
	if resource != shardReports && resource != shards {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.registered
	if resource == shardReports {
		names, r.at = r.reporting, at
	} else {
		r.registeredAt = at
	}
	if object == nil || !m.believes(resource, object) {
		return
	}
	if resource == shardReports {
		r.complete.OnEvent(change, object, at)
	}
	if change == watch.Deleted {
		delete(names, object.Name)
		return
	}
	names[object.Name] = resource == shardReports || reportedOnce(object)
}

// silent tells whether a shard certainly has no report in the store that a position is of.
func (r *reports) silent(shard string, at client.Position) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at.ResourceVersion != "" && r.at.Incarnation == at.Incarnation && !r.reporting[shard]
}

// complete tells whether what a stream at a position has not seen of a shard does not exist. That also holds for a shard
// which is none any more: it is not registered, and its report was cleared away.
func (m *Mirror) complete(ctx context.Context, shard string, at client.Position) bool {
	if m.reports.complete.At(shard, at) {
		return true
	}
	if !m.reports.silent(shard, at) {
		return false
	}
	registered, err := m.registered(ctx, at)
	_, is := registered[shard]
	return err == nil && !is
}

// whyIncomplete returns why a stream at a position has not seen everything that all other shards have; nil if it has.
func (m *Mirror) whyIncomplete(ctx context.Context, at client.Position) error {
	registered, err := m.registered(ctx, at)
	if err != nil {
		return err
	}
	m.blanks.keep(registered)
	var reason error
	for shard, reported := range registered {
		if shard != m.cfg.Shard && !m.reports.complete.At(shard, at) && !m.blank(ctx, shard, reported, at) {
			reason = notComplete(shard) // and go on: all that are blank are to be seen
		}
	}
	return reason
}

func notComplete(shard string) error {
	return fmt.Errorf("shard %q has not said yet that everything it has is in the cache", shard)
}

// registered returns the names of all shards, and whether each has ever reported, or why they are not known.
func (m *Mirror) registered(ctx context.Context, at client.Position) (map[string]bool, error) {
	if m.cfg.Shards != nil {
		return m.cfg.Shards(ctx)
	}
	r := &m.reports
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.complete.At(m.cfg.Root, future(r.at)) {
		return nil, notComplete(m.cfg.Root)
	}
	if r.registeredAt.Incarnation != at.Incarnation || !r.complete.At(m.cfg.Root, r.registeredAt) && at != future(at) {
		return nil, errors.New("the list of shards is not read from the cache yet")
	}
	return maps.Clone(r.registered), nil
}

// future returns a position in the same store that no stream has come to yet.
func future(at client.Position) client.Position {
	return client.Position{Incarnation: at.Incarnation, ResourceVersion: strconv.FormatUint(math.MaxUint64, 10)}
}
