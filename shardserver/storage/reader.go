package storage

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Reader reads objects of one resource straight from the shard's watch cache (wall W6): no HTTP, no second copy.
// The logical cluster is that of the context. T is the internal type of the registry (for example *rbac.Role of
// k8s.io/kubernetes/pkg/apis/rbac; kcp's own types are their own internal type). What is returned is shared with
// the cache: copy before changing.
type Reader[T runtime.Object] struct {
	registry *Registry
	resource schema.GroupResource
	// everywhere extends what is read to what other shards have.
	everywhere bool
}

// NewReader returns a reader of a resource that need not be installed yet; calls fail until it is.
func NewReader[T runtime.Object](registry *Registry, resource schema.GroupResource) *Reader[T] {
	return &Reader[T]{registry: registry, resource: resource}
}

// Everywhere returns a reader that knows the objects of other shards, too, as far as they are published: an object or a
// logical cluster that is not on this shard is looked up in Registry.Elsewhere. It fails closed: while what others
// have is not known, an object that was not found is not a NotFound error but Undecided, and so is a list of a logical
// cluster that is not here. A list of all clusters, and WatchAll, tell what is known. Resources for which
// OnlyElsewhere holds can be read in no other way.
func (r *Reader[T]) Everywhere() *Reader[T] {
	return &Reader[T]{registry: r.registry, resource: r.resource, everywhere: true}
}

// Resource returns what is read.
func (r *Reader[T]) Resource() schema.GroupResource { return r.resource }

// Get returns one object of the context's logical cluster, or a Kubernetes NotFound error. The namespace is empty
// for cluster-scoped resources. It may lag behind the last write by the delay of the watch cache.
func (r *Reader[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return r.get(ctx, namespace, name, "0")
}

// GetLatest is Get with the consistency of a client's GET: it sees every write that was acknowledged before.
func (r *Reader[T]) GetLatest(ctx context.Context, namespace, name string) (T, error) {
	return r.get(ctx, namespace, name, "")
}

// GetNotOlderThan is Get, and waits until the watch cache has come as far as the resource version, which a write of
// the caller's has returned. It asks etcd for nothing.
func (r *Reader[T]) GetNotOlderThan(ctx context.Context, namespace, name, resourceVersion string) (T, error) {
	return r.get(ctx, namespace, name, resourceVersion)
}

func (r *Reader[T]) get(ctx context.Context, namespace, name, resourceVersion string) (T, error) {
	var none T
	obj, err := r.getObject(ctx, namespace, name, resourceVersion)
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("reading %s: got %T, want %T", r.resource, obj, none)
	}
	return typed, nil
}

func (r *Reader[T]) getObject(ctx context.Context, namespace, name, resourceVersion string) (runtime.Object, error) {
	if r.everywhere && OnlyElsewhere(r.resource) {
		return r.registry.getElsewhere(ctx, r.resource, namespace, name)
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	obj, err := resource.Store.Get(scoped(ctx, r.resource, namespace), name, &metav1.GetOptions{ResourceVersion: resourceVersion})
	if r.everywhere && apierrors.IsNotFound(err) {
		return r.registry.getElsewhere(ctx, r.resource, namespace, name)
	}
	return obj, err
}

// List returns the objects of the context's logical cluster in a namespace (all if empty) that match the selector
// (all if nil). With the wildcard cluster in the context it returns those of all clusters.
func (r *Reader[T]) List(ctx context.Context, namespace string, selector labels.Selector) ([]T, error) {
	return r.list(ctx, namespace, selector, "0")
}

// ListLatest is List with the consistency of a client's LIST.
func (r *Reader[T]) ListLatest(ctx context.Context, namespace string, selector labels.Selector) ([]T, error) {
	return r.list(ctx, namespace, selector, "")
}

func (r *Reader[T]) list(ctx context.Context, namespace string, selector labels.Selector, resourceVersion string) ([]T, error) {
	var items []T
	add := func(obj runtime.Object) error {
		typed, ok := obj.(T)
		if !ok {
			var none T
			return fmt.Errorf("listing %s: got %T, want %T", r.resource, obj, none)
		}
		items = append(items, typed)
		return nil
	}
	if r.everywhere {
		if err := r.eachElsewhere(ctx, namespace, selector, add); err != nil || OnlyElsewhere(r.resource) {
			return items, err
		}
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	list, err := resource.Store.List(scoped(ctx, r.resource, namespace), &internalversion.ListOptions{LabelSelector: selector, ResourceVersion: resourceVersion})
	if err != nil {
		return nil, err
	}
	items = slices.Grow(items, meta.LenList(list))
	return items, meta.EachListItem(list, add)
}

// Complete returns nil if the absence of an object on all shards that are read means that there is none; otherwise it is
// Undecided.
func (r *Reader[T]) Complete() error {
	if !r.everywhere {
		return nil
	}
	if err := r.registry.Elsewhere().Known(r.resource); err != nil {
		return undecided(r.resource, err)
	}
	return nil
}

// eachElsewhere calls a function with what other shards have in the context's logical cluster.
func (r *Reader[T]) eachElsewhere(ctx context.Context, namespace string, selector labels.Selector, each func(runtime.Object) error) error {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil
	}
	objects, err := r.registry.ListElsewhere(ctx, r.resource, cluster)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return fmt.Errorf("listing %s: %w", r.resource, err)
		}
		if (namespace != "" && accessor.GetNamespace() != namespace) || (selector != nil && !selector.Matches(labels.Set(accessor.GetLabels()))) {
			continue
		}
		if err := each(obj); err != nil {
			return err
		}
	}
	return nil
}

// WatchAll streams the resource in all logical clusters of the shard: first everything that exists as Added
// events, then a Bookmark with the annotation metav1.InitialEventsAnnotationKey, then changes. Objects are of the
// internal type and read-only: some are shared with the watch cache. Their cluster is logicalcluster.Of. The stream ends
// with the context, or when the cache restarts: then call again. With Everywhere the stream has the objects of other shards, too.
func (r *Reader[T]) WatchAll(ctx context.Context) (watch.Interface, error) {
	if r.everywhere && OnlyElsewhere(r.resource) {
		return r.registry.WatchElsewhere(ctx, r.resource)
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	here, err := WatchAll(ctx, resource)
	if err != nil || !r.everywhere {
		return here, err
	}
	elsewhere, err := r.registry.WatchElsewhere(ctx, r.resource)
	if err != nil {
		here.Stop()
		return nil, err
	}
	return merge(ctx, here, elsewhere), nil
}

// WatchAll is Reader.WatchAll for a resource whose type does not matter.
func WatchAll(ctx context.Context, resource *Resource) (watch.Interface, error) {
	return watchAll(ctx, resource, unwrapped)
}

// WatchAllMetadata is WatchAll for readers that only look at the metadata of what they get, which is all that can be
// told of its type: it spares the copy of each object that changed.
func WatchAllMetadata(ctx context.Context, resource *Resource) (watch.Interface, error) {
	return watchAll(ctx, resource, func(event watch.Event) watch.Event { return event })
}

// unwrapped takes the object out of the envelope in which the watch cache shares one encoding among several watchers.
func unwrapped(event watch.Event) watch.Event {
	if envelope, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = envelope.GetObject()
	}
	return event
}

// scoped puts the namespace where registries look for it. It also replaces a request's own RequestInfo, whose name
// and namespace would otherwise narrow what the watch cache looks at, and whose resource would stand in errors.
func scoped(ctx context.Context, resource schema.GroupResource, namespace string) context.Context {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: resource.Group, Resource: resource.Resource})
	return request.WithNamespace(ctx, namespace)
}
