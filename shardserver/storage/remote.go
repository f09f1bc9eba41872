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

	"github.com/atoll-dev/atoll/logicalcluster"
)

// RemoteStore reads replicas of the objects that other shards of the installation publish. Objects have the type that a
// local reader of the resource returns, those of the group sharding.kcp.io their versioned type. They are shared and
// must not be modified. They have the annotations kcp.io/cluster and kcp.io/shard, and the UID and resource version of
// the original. No method sends requests to other processes.
type RemoteStore interface {
	// Get returns one object. For kinds that several shards publish with the same name (ExportConsumers), use List.
	Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool)
	// List returns the objects of a logical cluster, or of all with the wildcard, unordered.
	List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object
	// Watch watches a resource in all logical clusters: the replicas as Added, a Bookmark with the annotation
	// metav1.InitialEventsAnnotationKey, then changes. The watch ends with the context, when it is stopped, when its
	// reader is too slow, or when the replicas have synced, so that readers process the objects again: then call Watch
	// again.
	Watch(ctx context.Context, resource schema.GroupResource) (watch.Interface, error)
	// CheckSynced returns nil if the absence of an object means that it does not exist, otherwise the reason why it may
	// exist.
	CheckSynced(resource schema.GroupResource) error
}

// emptyRemoteStore is the RemoteStore of a single shard.
type emptyRemoteStore struct{}

func (emptyRemoteStore) Get(schema.GroupResource, logicalcluster.Name, string, string) (runtime.Object, bool) {
	return nil, false
}
func (emptyRemoteStore) List(schema.GroupResource, logicalcluster.Name) []runtime.Object { return nil }
func (emptyRemoteStore) CheckSynced(schema.GroupResource) error                          { return nil }

func (emptyRemoteStore) Watch(ctx context.Context, _ schema.GroupResource) (watch.Interface, error) {
	return newEmptyWatch(ctx), nil
}

// SetRemoteStore sets the reader of other shards' objects. By default there are none.
func (r *Registry) SetRemoteStore(remote RemoteStore) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remoteStore = remote
}

// RemoteStore returns the reader of other shards' objects; never nil.
func (r *Registry) RemoteStore() RemoteStore {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.remoteStore
}

// Locality defines which objects of an installation are on this shard. The zero value is that of a registry
// without logical clusters of tenants and without replicas.
type Locality struct {
	// LogicalClusters is the resource of the object that each logical cluster of this shard has, and LogicalClusterName the
	// object's name.
	LogicalClusters    schema.GroupResource
	LogicalClusterName string
	// RemoteOnly reports whether a resource exists in replicas only, and is not stored in logical clusters.
	RemoteOnly func(schema.GroupResource) bool
	// Moves reports whether the annotations of that object express that the shard has the logical cluster and does not serve it,
	// because it moves; nil if none does.
	Moves func(annotations map[string]string) bool
}

// IsRemoteOnly reports whether a resource exists in replicas only.
func (r *Registry) IsRemoteOnly(resource schema.GroupResource) bool {
	return r.locality.RemoteOnly != nil && r.locality.RemoteOnly(resource)
}

// IsLocal reports whether this shard serves a logical cluster. Objects of such a logical cluster are never read from
// replicas. The shard's own logical clusters ("system:...") are on every shard.
func (r *Registry) IsLocal(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if cluster.IsSystem() {
		return true, nil
	}
	obj, err := r.logicalCluster(ctx, cluster)
	if err != nil || obj == nil {
		return false, err
	}
	// The watch cache has a change before the guard. A logical cluster counts when both show it.
	moves := r.locality.Moves != nil && r.locality.Moves(obj.GetAnnotations())
	return !moves && !r.IsHidden(cluster), nil
}

// WatchRemote watches the replicas of a resource, like RemoteStore.Watch, without objects of logical clusters that
// this shard serves, which other shards must not publish.
func (r *Registry) WatchRemote(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	stream, err := r.RemoteStore().Watch(ctx, resource)
	if err != nil || r.IsRemoteOnly(resource) {
		return stream, err
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		obj, ok := event.Object.(metav1.Object)
		if !ok || event.Type == watch.Bookmark || event.Type == watch.Error {
			return event, true
		}
		local, err := r.IsLocal(ctx, logicalcluster.Of(obj))
		return event, err == nil && !local
	}), nil
}

// ListRemote returns the replicas of a resource in a logical cluster, or in all with the wildcard, without objects
// of logical clusters on this shard, which other shards must not publish. For one logical cluster, it returns a
// NotSyncedError if the replicas are not synced, because the absence of an object proves nothing then.
func (r *Registry) ListRemote(ctx context.Context, resource schema.GroupResource, cluster logicalcluster.Name) ([]runtime.Object, error) {
	remote := r.RemoteStore()
	if cluster.IsWildcard() || r.IsRemoteOnly(resource) {
		return r.excludeLocal(ctx, resource, remote.List(resource, cluster))
	}
	local, err := r.IsLocal(ctx, cluster)
	if err != nil || local {
		return nil, err
	}
	if err := remote.CheckSynced(resource); err != nil {
		return nil, newNotSyncedError(resource, err)
	}
	return remote.List(resource, cluster), nil
}

// excludeLocal returns the objects without those of logical clusters on this shard.
func (r *Registry) excludeLocal(ctx context.Context, resource schema.GroupResource, objects []runtime.Object) ([]runtime.Object, error) {
	if r.IsRemoteOnly(resource) {
		return objects, nil
	}
	localClusters := map[logicalcluster.Name]bool{}
	kept := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		accessor, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("listing %s of other shards: got %T without metadata", resource, obj)
		}
		cluster := logicalcluster.Of(accessor)
		local, known := localClusters[cluster]
		if !known {
			var err error
			if local, err = r.IsLocal(ctx, cluster); err != nil {
				return nil, err
			}
			localClusters[cluster] = local
		}
		if !local {
			kept = append(kept, obj)
		}
	}
	return kept, nil
}

// getRemote returns a replica, a NotFound error, or a NotSyncedError if the replicas are not synced and the object
// may exist.
func (r *Registry) getRemote(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	notFound := apierrors.NewNotFound(resource, name)
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return nil, notFound
	}
	if !r.IsRemoteOnly(resource) {
		if local, err := r.IsLocal(ctx, cluster); err != nil {
			return nil, err
		} else if local {
			return nil, notFound
		}
	}
	remote := r.RemoteStore()
	if obj, found := remote.Get(resource, cluster, namespace, name); found {
		return obj, nil
	}
	if err := remote.CheckSynced(resource); err != nil {
		return nil, newNotSyncedError(resource, err)
	}
	return nil, notFound
}

// NotSyncedError is the error for an object that was not found, but may exist on another shard whose replicas are not
// synced. Clients receive ServiceUnavailable. Controllers need not report it: they are called again after the sync.
type NotSyncedError struct{ *apierrors.StatusError }

func newNotSyncedError(resource schema.GroupResource, reason error) error {
	return &NotSyncedError{apierrors.NewServiceUnavailable(fmt.Sprintf("the %s of other shards are not synced: %v", resource, reason))}
}

// IsNotSynced reports whether an error is or wraps a NotSyncedError.
func IsNotSynced(err error) bool {
	var notSynced *NotSyncedError
	return errors.As(err, &notSynced)
}
