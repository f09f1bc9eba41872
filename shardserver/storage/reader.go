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

// Reader reads objects of one resource directly from the shard's watch cache, without HTTP and without a second copy.
// The logical cluster is that of the context. T is the internal type of the registry (for example *rbac.Role of
// k8s.io/kubernetes/pkg/apis/rbac; kcp's own types are their own internal type). Returned objects are shared with the
// cache and must not be modified.
type Reader[T runtime.Object] struct {
	registry *Registry
	resource schema.GroupResource
	// global includes replicas of other shards.
	global bool
}

// NewReader returns a reader of a resource that need not be installed yet; calls fail until it is.
func NewReader[T runtime.Object](registry *Registry, resource schema.GroupResource) *Reader[T] {
	return &Reader[T]{registry: registry, resource: resource}
}

// Global returns a reader that includes replicas of other shards: an object of a logical cluster that is not on this
// shard is read from Registry.RemoteStore. It fails closed: while the replicas are not synced, reading an object that
// was not found, or listing a logical cluster of another shard, returns a NotSyncedError. A list of all logical
// clusters, and WatchAll, include the replicas that exist so far. The objects of a logical cluster that this shard has handed over
// stay until the shard that takes over has published them. Resources for which Registry.IsRemoteOnly returns true
// can be read in no other way.
func (r *Reader[T]) Global() *Reader[T] {
	return &Reader[T]{registry: r.registry, resource: r.resource, global: true}
}

// Resource returns the resource of the reader.
func (r *Reader[T]) Resource() schema.GroupResource { return r.resource }

// Get returns one object of the context's logical cluster, or a Kubernetes NotFound error. The namespace is empty for
// cluster-scoped resources. It may lag behind the last write by the delay of the watch cache.
func (r *Reader[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return r.get(ctx, namespace, name, "0")
}

// GetLatest is Get with the consistency of a client's GET: it observes every write that was acknowledged before.
func (r *Reader[T]) GetLatest(ctx context.Context, namespace, name string) (T, error) {
	return r.get(ctx, namespace, name, "")
}

// GetNotOlderThan is Get, and waits until the watch cache has observed the resource version, which a write of the
// caller returned. It sends no request to etcd.
func (r *Reader[T]) GetNotOlderThan(ctx context.Context, namespace, name, resourceVersion string) (T, error) {
	return r.get(ctx, namespace, name, resourceVersion)
}

func (r *Reader[T]) get(ctx context.Context, namespace, name, resourceVersion string) (T, error) {
	var zero T
	obj, err := r.getObject(ctx, namespace, name, resourceVersion)
	if err != nil {
		return zero, err
	}
	typed, ok := obj.(T)
	if !ok {
		return zero, fmt.Errorf("reading %s: got %T, want %T", r.resource, obj, zero)
	}
	return typed, nil
}

func (r *Reader[T]) getObject(ctx context.Context, namespace, name, resourceVersion string) (runtime.Object, error) {
	if r.global && r.registry.IsRemoteOnly(r.resource) {
		return r.registry.getRemote(ctx, r.resource, namespace, name)
	}
	if cluster, ok := logicalcluster.From(ctx); r.global && ok && r.registry.IsHidden(cluster) {
		return r.getMoving(ctx, cluster, namespace, name, resourceVersion)
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	obj, err := resource.Store.Get(withRequestInfo(ctx, r.resource, namespace), name, &metav1.GetOptions{ResourceVersion: resourceVersion})
	if r.global && apierrors.IsNotFound(err) {
		return r.registry.getRemote(ctx, r.resource, namespace, name)
	}
	return obj, err
}

// List returns the objects of the context's logical cluster in a namespace (all if empty) that match the selector (all
// if nil). With the wildcard in the context it returns those of all logical clusters.
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
			var zero T
			return fmt.Errorf("listing %s: got %T, want %T", r.resource, obj, zero)
		}
		items = append(items, typed)
		return nil
	}
	if r.global {
		if err := r.eachRemote(ctx, namespace, selector, add); err != nil || r.registry.IsRemoteOnly(r.resource) {
			return items, err
		}
		add = r.filterMoving(ctx, add)
		ctx = r.registry.unrestricted(ctx)
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	list, err := resource.Store.List(withRequestInfo(ctx, r.resource, namespace), &internalversion.ListOptions{LabelSelector: selector, ResourceVersion: resourceVersion})
	if err != nil {
		return nil, err
	}
	items = slices.Grow(items, meta.LenList(list))
	return items, meta.EachListItem(list, add)
}

// CheckSynced returns nil if the absence of an object means that it exists on none of the shards that are read,
// otherwise a NotSyncedError.
func (r *Reader[T]) CheckSynced() error {
	if !r.global {
		return nil
	}
	if err := r.registry.RemoteStore().CheckSynced(r.resource); err != nil {
		return newNotSyncedError(r.resource, err)
	}
	return nil
}

// eachRemote calls a function for each replica in the context's logical cluster.
func (r *Reader[T]) eachRemote(ctx context.Context, namespace string, selector labels.Selector, fn func(runtime.Object) error) error {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil
	}
	objects, err := r.registry.ListRemote(ctx, r.resource, cluster)
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
		if err := fn(obj); err != nil {
			return err
		}
	}
	return nil
}

// WatchAll watches the resource in all logical clusters of the shard: first all existing objects as Added events, then
// a Bookmark with the annotation metav1.InitialEventsAnnotationKey, then changes. Objects have the internal type and
// must not be modified: some are shared with the watch cache. Their logical cluster is logicalcluster.Of. The watch
// ends with the context, or when the cache restarts: then call WatchAll again. With Global it includes replicas of
// other shards.
func (r *Reader[T]) WatchAll(ctx context.Context) (watch.Interface, error) {
	if r.global && r.registry.IsRemoteOnly(r.resource) {
		return r.registry.WatchRemote(ctx, r.resource)
	}
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	if !r.global {
		return WatchAll(ctx, resource)
	}
	local, err := r.watchMoving(ctx, resource)
	if err != nil {
		return nil, err
	}
	remote, err := r.registry.WatchRemote(ctx, r.resource)
	if err != nil {
		local.Stop()
		return nil, err
	}
	return merge(ctx, local, remote), nil
}

// WatchAll is Reader.WatchAll without a type.
func WatchAll(ctx context.Context, resource *Resource) (watch.Interface, error) {
	return watchAll(ctx, resource, unwrapEvent)
}

// WatchAllMetadata is WatchAll for callers that read only the metadata of objects, whose type is unspecified. It saves
// copying each changed object.
func WatchAllMetadata(ctx context.Context, resource *Resource) (watch.Interface, error) {
	return watchAll(ctx, resource, func(event watch.Event) watch.Event { return event })
}

// unwrapEvent returns the event with the object in the envelope with which the watch cache shares one encoding among
// watchers.
func unwrapEvent(event watch.Event) watch.Event {
	if envelope, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = envelope.GetObject()
	}
	return event
}

// withRequestInfo sets the namespace in the context, where registries read it. It also replaces a request's own RequestInfo,
// whose name and namespace would otherwise narrow the reads of the watch cache, and whose resource would appear in
// errors.
func withRequestInfo(ctx context.Context, resource schema.GroupResource, namespace string) context.Context {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: resource.Group, Resource: resource.Resource})
	return request.WithNamespace(ctx, namespace)
}
