package endpoints

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ShardLister reads the shards of the installation, from any shard. The Shard objects in root decide which exist, and have what administrators
// decide. Labels and addresses are those of the Shard that each shard owns, in its logical cluster system:shard; shards of earlier versions own
// none.
type ShardLister struct {
	reader   *storage.Reader[*corev1alpha1.Shard]
	registry *storage.Registry
}

// NewShardLister returns a ShardLister that reads from a registry.
func NewShardLister(registry *storage.Registry) ShardLister {
	return ShardLister{storage.NewReader[*corev1alpha1.Shard](registry, shards).Global(), registry}
}

// CheckSynced returns nil if a shard that List does not return does not exist.
func (s ShardLister) CheckSynced() error { return s.reader.CheckSynced() }

// List returns all shards of the installation, or a ServiceUnavailable error while they are not synced. They are shared and must not be changed.
func (s ShardLister) List(ctx context.Context) ([]*corev1alpha1.Shard, error) {
	all, err := s.reader.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
	for i := range all {
		all[i] = s.preferOwned(ctx, all[i])
	}
	return all, err
}

// Get returns a shard by name, or a NotFound error.
func (s ShardLister) Get(ctx context.Context, name string) (*corev1alpha1.Shard, error) {
	inRoot, err := s.Registered(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.preferOwned(ctx, inRoot), nil
}

// Registered returns the Shard in root. Its addresses are those that other shards have written to endpoint slices: a shard that starts at a new
// address knows that before others do.
func (s ShardLister) Registered(ctx context.Context, name string) (*corev1alpha1.Shard, error) {
	return s.reader.Get(logicalcluster.With(ctx, logicalcluster.Root), "", name)
}

// preferOwned returns a Shard in root with the labels and addresses of the one that the shard owns.
func (s ShardLister) preferOwned(ctx context.Context, inRoot *corev1alpha1.Shard) *corev1alpha1.Shard {
	owned := s.owned(ctx, inRoot.Name)
	if owned == nil {
		return inRoot
	}
	spec := owned.Spec
	spec.ResourceLimits = inRoot.Spec.ResourceLimits
	if spec == inRoot.Spec && maps.Equal(owned.Labels, inRoot.Labels) {
		return inRoot
	}
	merged := *inRoot // what the copy shares is not changed
	merged.Labels, merged.Spec = owned.Labels, spec
	return &merged
}

// owned returns the Shard that a shard owns, or nil if it is not known here.
func (s ShardLister) owned(ctx context.Context, name string) *corev1alpha1.Shard {
	if remote, found := s.registry.RemoteStore().Get(shards, logicalcluster.Shard, "", name); found {
		owned, _ := remote.(*corev1alpha1.Shard)
		return owned
	}
	owned, err := s.reader.Get(logicalcluster.With(ctx, logicalcluster.Shard), "", name)
	if err != nil {
		return nil
	}
	return owned
}

var shards = corev1alpha1.Resource("shards")

// ShardChanges reports which events of Shard objects change what routing and scheduling read. Heartbeats change only
// the status of a Shard, and must not trigger them. It keeps a small state per shard. The zero value is ready to use
// and safe for concurrent use.
type ShardChanges struct {
	mu    sync.Mutex
	known map[string]shardState
}

// shardState is the part of a Shard that routing and scheduling read.
type shardState struct {
	labels map[string]string
	spec   corev1alpha1.ShardSpec
	// unschedulable is the annotation that excludes the shard from scheduling, or nil.
	unschedulable *string
}

// Observe returns the name of the shard of an event, and whether the event changes its labels, its addresses or whether
// it is schedulable. Objects outside root are not shards of the installation.
func (s *ShardChanges) Observe(event watch.Event) (name string, changed bool) {
	shard, ok := event.Object.(*corev1alpha1.Shard)
	if !ok || logicalcluster.Of(shard) != logicalcluster.Root {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.known[shard.Name]
	if event.Type == watch.Deleted {
		delete(s.known, shard.Name)
		return shard.Name, true
	}
	if s.known == nil {
		s.known = map[string]shardState{}
	}
	now := shardState{labels: maps.Clone(shard.Labels), spec: shard.Spec}
	if value, unschedulable := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; unschedulable {
		now.unschedulable = &value
	}
	s.known[shard.Name] = now
	return shard.Name, !known || !maps.Equal(now.labels, before.labels) || !equality.Semantic.DeepEqual(now.spec, before.spec) || !ptr.Equal(now.unschedulable, before.unschedulable)
}

// Changed is Observe without the name.
func (s *ShardChanges) Changed(event watch.Event) bool {
	_, changed := s.Observe(event)
	return changed
}
