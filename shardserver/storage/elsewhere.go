package storage

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Elsewhere reads replicas of the objects that other shards of the installation publish. Objects have the type that a
// local reader of the resource returns, those of the group sharding.kcp.io their versioned type. They are shared and
// must not be modified. They have the annotations kcp.io/cluster and kcp.io/shard, and the UID and resource version of
// the original. No method sends requests to other processes.
type Elsewhere interface {
	// Get returns one object. For kinds that several shards publish with the same name (ExportConsumers), use List.
	Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool)
	// List returns the objects of a logical cluster, or of all with the wildcard, unordered.
	List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object
	// Watch watches a resource in all logical clusters: the replicas as Added, a Bookmark with the annotation
	// metav1.InitialEventsAnnotationKey, then changes. The watch ends with the context, when it is stopped, when its
	// reader is too slow, or when the replicas have synced, so that readers process the objects again: then call Watch
	// again.
	Watch(ctx context.Context, resource schema.GroupResource) (watch.Interface, error)
	// Known returns nil if the absence of an object means that it does not exist, otherwise the reason why it may
	// exist.
	Known(resource schema.GroupResource) error
}

// nowhere is the Elsewhere of a single shard.
type nowhere struct{}

func (nowhere) Get(schema.GroupResource, logicalcluster.Name, string, string) (runtime.Object, bool) {
	return nil, false
}
func (nowhere) List(schema.GroupResource, logicalcluster.Name) []runtime.Object { return nil }
func (nowhere) Known(schema.GroupResource) error                                { return nil }

func (nowhere) Watch(ctx context.Context, _ schema.GroupResource) (watch.Interface, error) {
	return newQuiet(ctx), nil
}

// SetElsewhere sets the reader of other shards' objects. By default there are none.
func (r *Registry) SetElsewhere(elsewhere Elsewhere) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elsewhere = elsewhere
}

// Elsewhere returns the reader of other shards' objects; never nil.
func (r *Registry) Elsewhere() Elsewhere {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.elsewhere
}

// OnlyElsewhere reports whether a resource exists in replicas only: objects of sharding.kcp.io, which shards exchange,
// are not stored in logical clusters.
func OnlyElsewhere(resource schema.GroupResource) bool {
	return resource.Group == shardingv1alpha1.GroupName
}

// Here reports whether a logical cluster is on this shard. Objects of such a logical cluster are never read from
// replicas. The shard's own logical clusters ("system:...") are on every shard.
func (r *Registry) Here(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if cluster.IsSystem() {
		return true, nil
	}
	gr := corev1alpha1.Resource("logicalclusters")
	resource, err := r.Get(gr)
	if err != nil {
		return false, err
	}
	_, err = resource.Store.Get(scoped(logicalcluster.With(ctx, cluster), gr, ""), corev1alpha1.LogicalClusterName, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// WatchElsewhere watches the replicas of a resource, like Elsewhere.Watch, without objects of logical clusters on this
// shard, which other shards must not publish.
func (r *Registry) WatchElsewhere(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	stream, err := r.Elsewhere().Watch(ctx, resource)
	if err != nil || OnlyElsewhere(resource) {
		return stream, err
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		obj, ok := event.Object.(metav1.Object)
		if !ok || event.Type == watch.Bookmark || event.Type == watch.Error {
			return event, true
		}
		here, err := r.Here(ctx, logicalcluster.Of(obj))
		return event, err == nil && !here
	}), nil
}

// ListElsewhere returns the replicas of a resource in a logical cluster, or in all with the wildcard, without objects
// of logical clusters on this shard, which other shards must not publish. For one logical cluster, it returns an
// Undecided error if the replicas are not synced, because the absence of an object proves nothing then.
func (r *Registry) ListElsewhere(ctx context.Context, resource schema.GroupResource, cluster logicalcluster.Name) ([]runtime.Object, error) {
	elsewhere := r.Elsewhere()
	if cluster.IsWildcard() || OnlyElsewhere(resource) {
		return r.strangers(ctx, resource, elsewhere.List(resource, cluster))
	}
	here, err := r.Here(ctx, cluster)
	if err != nil || here {
		return nil, err
	}
	if err := elsewhere.Known(resource); err != nil {
		return nil, undecided(resource, err)
	}
	return elsewhere.List(resource, cluster), nil
}

// strangers returns the objects without those of logical clusters on this shard.
func (r *Registry) strangers(ctx context.Context, resource schema.GroupResource, objects []runtime.Object) ([]runtime.Object, error) {
	if OnlyElsewhere(resource) {
		return objects, nil
	}
	here := map[logicalcluster.Name]bool{}
	kept := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		accessor, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("listing %s of other shards: got %T without metadata", resource, obj)
		}
		cluster := logicalcluster.Of(accessor)
		local, asked := here[cluster]
		if !asked {
			var err error
			if local, err = r.Here(ctx, cluster); err != nil {
				return nil, err
			}
			here[cluster] = local
		}
		if !local {
			kept = append(kept, obj)
		}
	}
	return kept, nil
}

// getElsewhere returns a replica, a NotFound error, or an Undecided error if the replicas are not synced and the object
// may exist.
func (r *Registry) getElsewhere(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	missing := apierrors.NewNotFound(resource, name)
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, missing
	}
	if !OnlyElsewhere(resource) {
		if here, err := r.Here(ctx, cluster); err != nil {
			return nil, err
		} else if here {
			return nil, missing
		}
	}
	elsewhere := r.Elsewhere()
	if obj, found := elsewhere.Get(resource, cluster, namespace, name); found {
		return obj, nil
	}
	if err := elsewhere.Known(resource); err != nil {
		return nil, undecided(resource, err)
	}
	return nil, missing
}

// Undecided is the error for an object that was not found, but may exist on another shard whose replicas are not
// synced. Clients receive ServiceUnavailable. Controllers need not report it: they are called again after the sync.
type Undecided struct{ *apierrors.StatusError }

func undecided(resource schema.GroupResource, reason error) error {
	return &Undecided{apierrors.NewServiceUnavailable(fmt.Sprintf("it is not known yet which %s other shards have: %v", resource, reason))}
}

// IsUndecided reports whether an error is or wraps Undecided.
func IsUndecided(err error) bool {
	var undecided *Undecided
	return errors.As(err, &undecided)
}
