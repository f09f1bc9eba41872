package endpoints

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// AllShards reads the Shard objects, which live in root, wherever that is.
type AllShards struct {
	reader *storage.Reader[*corev1alpha1.Shard]
}

// NewAllShards returns AllShards that read from a registry.
func NewAllShards(registry *storage.Registry) AllShards {
	return AllShards{storage.NewReader[*corev1alpha1.Shard](registry, corev1alpha1.Resource("shards")).Everywhere()}
}

// List returns all shards of the installation, or a ServiceUnavailable error while they are not known.
func (s AllShards) List(ctx context.Context) ([]*corev1alpha1.Shard, error) {
	return s.reader.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
}

// Get returns a shard by name, or a NotFound error.
func (s AllShards) Get(ctx context.Context, name string) (*corev1alpha1.Shard, error) {
	return s.reader.Get(logicalcluster.With(ctx, logicalcluster.Root), "", name)
}

// ShardNews tells which events of Shard objects are news to those who lead to shards or place on them: the heartbeat of
// every shard is in its status, and none. It keeps a few words per shard. The zero value is ready; it is safe for
// concurrent use.
type ShardNews struct {
	mu    sync.Mutex
	known map[string]said
}

// said is what addresses and places follow from.
type said struct {
	labels map[string]string
	spec   corev1alpha1.ShardSpec
	// closed is the annotation that keeps workspaces away, if there is one.
	closed *string
}

// Of returns the name of the shard that an event is about, and whether the event says something new of its labels, its
// addresses or what may be placed there. What is no shard of the installation, lying elsewhere than in root, is none.
func (n *ShardNews) Of(event watch.Event) (name string, news bool) {
	shard, ok := event.Object.(*corev1alpha1.Shard)
	if !ok || logicalcluster.Of(shard) != logicalcluster.Root {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.known[shard.Name]
	if event.Type == watch.Deleted {
		delete(n.known, shard.Name)
		return shard.Name, true
	}
	if n.known == nil {
		n.known = map[string]said{}
	}
	now := said{labels: maps.Clone(shard.Labels), spec: shard.Spec}
	if value, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; closed {
		now.closed = &value
	}
	n.known[shard.Name] = now
	return shard.Name, !known || !maps.Equal(now.labels, before.labels) || now.spec != before.spec || !ptr.Equal(now.closed, before.closed)
}

// IsNews is Of without the name.
func (n *ShardNews) IsNews(event watch.Event) bool {
	_, news := n.Of(event)
	return news
}
