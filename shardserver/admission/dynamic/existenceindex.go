package dynamic

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
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
func (p *existenceIndex) mayExist(cluster logicalcluster.Name) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return !p.synced || len(p.names[cluster]) > 0
}

// isAbsent reports whether a logical cluster, on this or another shard, certainly has no objects.
func (p *existenceIndex) isAbsent(ctx context.Context, cluster logicalcluster.Name) bool {
	if p.mayExist(cluster) {
		return false
	}
	if p.registry.RemoteStore().CheckSynced(p.resource) == nil {
		return true
	}
	local, err := p.registry.IsLocal(ctx, cluster)
	return err == nil && local
}

// run maintains the index until the context ends. It must be called once.
func (p *existenceIndex) run(ctx context.Context, resource watchable) {
	update := func(_ context.Context, object metav1.Object) error { p.update(object); return nil }
	informer.NewWithHandler(resource.Resource(), resource.WatchAll, informer.EventHandler[metav1.Object]{
		OnReplace:    func(_ context.Context, objects []metav1.Object, _ string) error { p.replace(objects); return nil },
		OnAdd:        update,
		OnUpdate:     update,
		OnDelete:     func(_ context.Context, object metav1.Object) error { p.delete(object); return nil },
		OnDisconnect: p.reset,
	}).Run(ctx)
}

// watchable is a storage.Reader of any type.
type watchable interface {
	Resource() schema.GroupResource
	WatchAll(ctx context.Context) (watch.Interface, error)
}

func (p *existenceIndex) replace(objects []metav1.Object) {
	for _, object := range objects {
		p.update(object)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
}

func (p *existenceIndex) update(object metav1.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cluster := logicalcluster.Of(object)
	if p.names == nil {
		p.names = map[logicalcluster.Name]map[string]struct{}{}
	}
	if p.names[cluster] == nil {
		p.names[cluster] = map[string]struct{}{}
	}
	p.names[cluster][object.GetName()] = struct{}{}
}

func (p *existenceIndex) delete(object metav1.Object) {
	cluster := logicalcluster.Of(object)
	p.mu.Lock()
	delete(p.names[cluster], object.GetName())
	absent := len(p.names[cluster]) == 0
	if absent {
		delete(p.names, cluster)
	}
	p.mu.Unlock()
	if absent {
		p.onAbsent(cluster)
	}
}

func (p *existenceIndex) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced, p.names = false, nil
}
