package publisher

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// objectWatch watches the objects of one storage in all logical clusters, and enqueues the ClusterCachedResources that
// select them.
type objectWatch struct {
	publisher *Publisher
	resource  schema.GroupResource
	// prefix is the etcd prefix of the storage.
	prefix string
	// keys are the ClusterCachedResources of each logical cluster. The publisher's mu guards them.
	keys   map[logicalcluster.Name]map[controller.Request]bool
	cancel context.CancelFunc
}

// watchObjects enqueues a ClusterCachedResource when objects of its resource change.
func (p *Publisher) watchObjects(key controller.Request, resource *storage.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for prefix, f := range p.watches { // another storage may serve the resource now
		if prefix != resource.Prefix && f.remove(key) {
			delete(p.watches, prefix)
		}
	}
	f := p.watches[resource.Prefix]
	if f == nil {
		f = &objectWatch{
			publisher: p, resource: resource.GVR.GroupResource(), prefix: resource.Prefix,
			keys: map[logicalcluster.Name]map[controller.Request]bool{}, cancel: func() {},
		}
		p.watches[resource.Prefix] = f
		p.startWatch(f)
	}
	if f.keys[key.ClusterName] == nil {
		f.keys[key.ClusterName] = map[controller.Request]bool{}
	}
	f.keys[key.ClusterName][key] = true
}

// startWatch starts a watch if this replica publishes. Callers must hold mu.
func (p *Publisher) startWatch(f *objectWatch) {
	if p.runCtx == nil || p.runCtx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.runCtx)
	f.cancel = cancel
	p.watchGroup.Go(func() {
		defer cancel()
		f.run(ctx)
	})
}

// remove removes a ClusterCachedResource, and ends the watch with the last one. Callers must hold the publisher's mu.
func (o *objectWatch) remove(key controller.Request) (last bool) {
	delete(o.keys[key.ClusterName], key)
	if len(o.keys[key.ClusterName]) == 0 {
		delete(o.keys, key.ClusterName)
	}
	if len(o.keys) > 0 {
		return false
	}
	o.cancel()
	return true
}

// run watches until the context ends.
func (o *objectWatch) run(ctx context.Context) {
	enqueue := func(_ context.Context, object metav1.Object) error { o.enqueue(logicalcluster.Of(object)); return nil }
	informer.NewWithHandler(o.resource, o.watch, informer.EventHandler[metav1.Object]{
		OnReplace: func(context.Context, []metav1.Object, string) error {
			o.enqueue(logicalcluster.Wildcard) // earlier changes were not observed
			return nil
		},
		OnAdd: enqueue, OnUpdate: enqueue, OnDelete: enqueue,
	}).Run(ctx)
}

// watch waits for the storage, which is removed with its last definition and may be added again, and watches it.
func (o *objectWatch) watch(ctx context.Context) (watch.Interface, error) {
	for ctx.Err() == nil {
		changed := o.publisher.cfg.Registry.Changed()
		for _, resource := range o.publisher.cfg.Registry.AllStorages() {
			if resource.Prefix == o.prefix {
				return storage.WatchAll(ctx, resource)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

// enqueue enqueues the ClusterCachedResources of a logical cluster, or all.
func (o *objectWatch) enqueue(cluster logicalcluster.Name) {
	o.publisher.mu.Lock()
	defer o.publisher.mu.Unlock()
	clusters := []logicalcluster.Name{cluster}
	if cluster.IsWildcard() {
		clusters = slices.Collect(maps.Keys(o.keys))
	}
	for _, cluster := range clusters {
		for key := range o.keys[cluster] {
			o.publisher.changes.Add(key)
		}
	}
}
