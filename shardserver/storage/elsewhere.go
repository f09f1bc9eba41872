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

// Elsewhere knows what the other shards of the installation have published. Objects are of the type that a local
// reader of the resource returns, those of the group sharding.kcp.io of their versioned type. They are shared: copy
// before changing. They carry the annotations kcp.io/cluster and kcp.io/shard, and the UID and resource version of the
// original. Nothing here asks another process.
type Elsewhere interface {
	// Get returns one object. Kinds that several shards publish under one name (ExportConsumers) are for List.
	Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool)
	// List returns the objects of a logical cluster, or of all with the wildcard, in no order.
	List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object
	// Watch streams a resource of all logical clusters: what is known as Added, a Bookmark with the annotation
	// metav1.InitialEventsAnnotationKey, then changes. The stream ends with the context, when it is stopped, when its reader
	// is too slow, or when everything has become known, so that who could not decide looks again: then call again.
	Watch(ctx context.Context, resource schema.GroupResource) (watch.Interface, error)
	// Known returns nil when the absence of an object means that there is none, otherwise why it proves nothing.
	Known(resource schema.GroupResource) error
}

// nowhere is what is elsewhere of a shard that is alone.
type nowhere struct{}

func (nowhere) Get(schema.GroupResource, logicalcluster.Name, string, string) (runtime.Object, bool) {
	return nil, false
}
func (nowhere) List(schema.GroupResource, logicalcluster.Name) []runtime.Object { return nil }
func (nowhere) Known(schema.GroupResource) error                                { return nil }

func (nowhere) Watch(ctx context.Context, _ schema.GroupResource) (watch.Interface, error) {
	return newQuiet(ctx), nil
}

// SetElsewhere installs what knows the objects of other shards. Until then there are none.
func (r *Registry) SetElsewhere(elsewhere Elsewhere) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elsewhere = elsewhere
}

// Elsewhere returns what knows the objects of other shards; never nil.
func (r *Registry) Elsewhere() Elsewhere {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.elsewhere
}

// OnlyElsewhere tells whether a resource is known from other shards alone: what shards tell one another is stored in
// no logical cluster.
func OnlyElsewhere(resource schema.GroupResource) bool {
	return resource.Group == shardingv1alpha1.GroupName
}

// Here tells whether a logical cluster lives on this shard. What such a cluster has is never taken from elsewhere.
// The shard's own clusters ("system:...") are on every shard.
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

// WatchElsewhere streams what other shards have of a resource, as Elsewhere.Watch does, without what claims to be of
// a logical cluster that is here.
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

// ListElsewhere returns what other shards have of a resource in a logical cluster, or in all with the wildcard, without
// what claims to be of a logical cluster that is here. For one cluster, an incomplete view of other shards is an error
// (Undecided): nobody may take what is not known for what is not there.
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

// strangers drops the objects of logical clusters that are here.
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

// getElsewhere returns an object of another shard, or why there is none: NotFound, or Undecided where what is not known
// may exist all the same.
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

// Undecided says that something was not found which other shards may have: it is not known yet. For clients it is a
// ServiceUnavailable. Controllers need not tell of it: they are called again when it is known.
type Undecided struct{ *apierrors.StatusError }

func undecided(resource schema.GroupResource, reason error) error {
	return &Undecided{apierrors.NewServiceUnavailable(fmt.Sprintf("it is not known yet which %s other shards have: %v", resource, reason))}
}

// IsUndecided tells whether an error is Undecided, or wraps one.
func IsUndecided(err error) bool {
	var undecided *Undecided
	return errors.As(err, &undecided)
}
