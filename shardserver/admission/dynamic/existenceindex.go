package dynamic

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// existenceIndex indexes the logical clusters that have objects of a resource, from one wildcard watch: a set of names
// for each logical cluster that has some, no entry for others. It saves every write of the shard four lists, which are
// almost always empty. While it is not synced, it reports that there may be objects.
//
// Of other shards it indexes what they publish, which may be incomplete; absent takes that into account.
type existenceIndex struct {
	registry *storage.Registry
	resource schema.GroupResource
	// onAbsent is called when the last object of a logical cluster is deleted.
	onAbsent func(logicalcluster.Name)

	mu     sync.RWMutex
	names  map[logicalcluster.Name]map[string]struct{}
	synced bool
}

// mayExist reports whether the logical cluster may have objects.
func (e *existenceIndex) mayExist(cluster logicalcluster.Name) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return !e.synced || len(e.names[cluster]) > 0
}

// isAbsent reports whether a logical cluster, on this or another shard, certainly has no objects.
func (e *existenceIndex) isAbsent(ctx context.Context, cluster logicalcluster.Name) bool {
	if e.mayExist(cluster) {
		return false
	}
	if e.registry.RemoteStore().CheckSynced(e.resource) == nil {
		return true
	}
	local, err := e.registry.IsLocal(ctx, cluster)
	return err == nil && local
}

// run maintains the index until the context ends. It must be called once. Logical clusters that move here are included, so that
// the first write to one meets its webhooks and policies.
func (e *existenceIndex) run(ctx context.Context, resource watchable) {
	update := func(_ context.Context, object metav1.Object) error { e.update(object); return nil }
	informer.NewWithHandler(resource.Resource(), resource.WatchAll, informer.EventHandler[metav1.Object]{
		OnReplace:    func(_ context.Context, objects []metav1.Object, _ string) error { e.replace(objects); return nil },
		OnAdd:        update,
		OnUpdate:     update,
		OnDelete:     func(_ context.Context, object metav1.Object) error { e.delete(object); return nil },
		OnDisconnect: e.reset,
	}).Run(fence.WithMover(ctx))
}

// watchable is a storage.Reader of any type.
type watchable interface {
	Resource() schema.GroupResource
	WatchAll(ctx context.Context) (watch.Interface, error)
}

func (e *existenceIndex) replace(objects []metav1.Object) {
	for _, object := range objects {
		e.update(object)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced = true
}

func (e *existenceIndex) update(object metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cluster := logicalcluster.Of(object)
	if e.names == nil {
		e.names = map[logicalcluster.Name]map[string]struct{}{}
	}
	if e.names[cluster] == nil {
		e.names[cluster] = map[string]struct{}{}
	}
	e.names[cluster][object.GetName()] = struct{}{}
}

func (e *existenceIndex) delete(object metav1.Object) {
	cluster := logicalcluster.Of(object)
	e.mu.Lock()
	delete(e.names[cluster], object.GetName())
	absent := len(e.names[cluster]) == 0
	if absent {
		delete(e.names, cluster)
	}
	e.mu.Unlock()
	if absent {
		e.onAbsent(cluster)
	}
}

func (e *existenceIndex) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced, e.names = false, nil
}
