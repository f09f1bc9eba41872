package storage

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Moves reports which logical clusters move from or to this shard.
type Moves struct {
	// Guard hides them.
	Guard Guard
	// Unrestricted returns a context whose lists and watches over all logical clusters include hidden ones.
	Unrestricted func(context.Context) context.Context
}

// SetMoves sets what reports which logical clusters move. By default none do.
func (r *Registry) SetMoves(moves Moves) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = moves
}

func (r *Registry) currentMoves() Moves {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.moves
}

// IsHidden reports whether the shard has a logical cluster that moves and that it does not serve.
func (r *Registry) IsHidden(cluster logicalcluster.Name) bool {
	guard := r.currentMoves().Guard
	return guard != nil && guard.HidesAny() && guard.Hides(cluster)
}

// unrestricted returns a context whose lists and watches over all logical clusters include hidden ones.
func (r *Registry) unrestricted(ctx context.Context) context.Context {
	if moves := r.currentMoves(); moves.Unrestricted != nil {
		return moves.Unrestricted(ctx)
	}
	return ctx
}

// movingObjects decides about the stored objects of hidden logical clusters for readers that include the replicas of other
// shards. Until the shard that takes over a logical cluster has published an object, the remainder on the shard that has handed
// it over counts, so that exports and the like never seem to be deleted. A copy that arrives does not count before it is open.
type movingObjects struct {
	registry *Registry
	resource schema.GroupResource
}

// includes reports whether a stored object of a hidden logical cluster counts.
func (m movingObjects) includes(ctx context.Context, obj metav1.Object) bool {
	if m.registry.lacks(ctx, logicalcluster.Of(obj)) {
		return false
	}
	_, published := m.registry.RemoteStore().Get(m.resource, logicalcluster.Of(obj), obj.GetNamespace(), obj.GetName())
	return !published
}

// lacks reports whether a logical cluster is a copy that is not open yet, and the caller may not see it.
func (r *Registry) lacks(ctx context.Context, cluster logicalcluster.Name) bool {
	guard := r.currentMoves().Guard
	return guard != nil && guard.Lacks(ctx, cluster)
}

// logicalCluster returns the object of a logical cluster as of the watch cache; nil if there is none.
func (r *Registry) logicalCluster(ctx context.Context, cluster logicalcluster.Name) (metav1.Object, error) {
	gr := r.locality.LogicalClusters
	resource, err := r.Get(gr)
	if err != nil {
		return nil, err
	}
	obj, err := resource.Store.Get(withRequestInfo(logicalcluster.With(ctx, cluster), gr, ""), r.locality.LogicalClusterName, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return meta.Accessor(obj)
}

// getMoving is getObject for the object of a hidden logical cluster.
func (r *Reader[T]) getMoving(ctx context.Context, cluster logicalcluster.Name, namespace, name, resourceVersion string) (runtime.Object, error) {
	if obj, found := r.registry.RemoteStore().Get(r.resource, cluster, namespace, name); found {
		return obj, nil
	}
	if !r.registry.lacks(ctx, cluster) {
		resource, err := r.registry.Get(r.resource)
		if err != nil {
			return nil, err
		}
		obj, err := resource.Store.Get(withRequestInfo(ctx, r.resource, namespace), name, &metav1.GetOptions{ResourceVersion: resourceVersion})
		if !apierrors.IsNotFound(err) {
			return obj, err
		}
	}
	return r.registry.getRemote(ctx, r.resource, namespace, name)
}

// filterMoving returns a function that calls another one with a stored object, unless it is of a hidden logical cluster and
// does not count.
func (r *Reader[T]) filterMoving(ctx context.Context, add func(runtime.Object) error) func(runtime.Object) error {
	objects := movingObjects{r.registry, r.resource}
	return func(obj runtime.Object) error {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return fmt.Errorf("listing %s: %w", r.resource, err)
		}
		if r.registry.IsHidden(logicalcluster.Of(accessor)) && !objects.includes(ctx, accessor) {
			return nil
		}
		return add(obj)
	}
}

// WatchMoving is WatchAll of stored objects, including those of logical clusters that move from or to this shard, whether it
// serves them or not.
func (r *Reader[T]) WatchMoving(ctx context.Context) (watch.Interface, error) {
	resource, err := r.registry.Get(r.resource)
	if err != nil {
		return nil, err
	}
	return WatchAll(r.registry.unrestricted(ctx), resource)
}

// ListMoving is List of stored objects, also in a logical cluster that moves from or to this shard and that it does not serve.
func (r *Reader[T]) ListMoving(ctx context.Context, namespace string, selector labels.Selector) ([]T, error) {
	return r.List(r.registry.unrestricted(ctx), namespace, selector)
}

// watchMoving watches the stored objects for a reader that includes the replicas of other shards.
func (r *Reader[T]) watchMoving(ctx context.Context, resource *Resource) (watch.Interface, error) {
	guard := r.registry.currentMoves().Guard
	if guard == nil {
		return WatchAll(ctx, resource)
	}
	if _, err := guard.Restricts(ctx); err != nil { // it is known what moves
		return nil, err
	}
	changes, unsubscribe := guard.Subscribe()
	ctx, cancel := context.WithCancel(ctx)
	inner, err := WatchAll(r.registry.unrestricted(ctx), resource)
	if err != nil {
		unsubscribe()
		cancel()
		return nil, err
	}
	w := &movingWatch{
		stream:  stream{events: make(chan watch.Event), cancel: cancel},
		objects: movingObjects{r.registry, r.resource}, inner: inner, changes: changes, dropped: map[logicalcluster.Name]struct{}{},
	}
	go func() {
		defer close(w.events)
		defer cancel()
		defer unsubscribe()
		defer inner.Stop()
		w.run(ctx)
	}()
	return w, nil
}

// movingWatch is a watch of stored objects without those of hidden logical clusters that do not count. It ends when one of which
// it has left out events is shown.
type movingWatch struct {
	stream
	objects movingObjects
	inner   watch.Interface
	changes <-chan HiddenChange
	// dropped are the hidden logical clusters of which events were left out. Showing or removing one deletes it here.
	dropped map[logicalcluster.Name]struct{}
}

func (w *movingWatch) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case change, ok := <-w.changes:
			if !ok || w.isAffected(change) {
				return
			}
		case event, ok := <-w.inner.ResultChan():
			if !ok {
				return
			}
			if w.leavesOut(ctx, event) {
				continue
			}
			if !w.send(ctx, event) {
				return
			}
		}
	}
}

// isAffected reports whether events were left out of a logical cluster that is shown.
func (w *movingWatch) isAffected(change HiddenChange) bool {
	if _, dropped := w.dropped[change.Cluster]; !dropped || w.objects.registry.IsHidden(change.Cluster) {
		return false
	}
	delete(w.dropped, change.Cluster)
	return !change.Gone
}

func (w *movingWatch) leavesOut(ctx context.Context, event watch.Event) bool {
	if event.Type == watch.Bookmark || event.Type == watch.Error {
		return false
	}
	obj, err := meta.Accessor(event.Object)
	if err != nil || !w.objects.registry.IsHidden(logicalcluster.Of(obj)) {
		return false
	}
	if w.objects.includes(ctx, obj) {
		return false
	}
	w.dropped[logicalcluster.Of(obj)] = struct{}{}
	return true
}
