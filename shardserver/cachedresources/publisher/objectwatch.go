package publisher

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// watchRetry is the delay before a watch that ended is restarted.
const watchRetry = 200 * time.Millisecond

// objectWatch watches the objects of one storage in all logical clusters, and enqueues the ClusterCachedResources that
// select them.
type objectWatch struct {
	publisher *Publisher
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
		f = &objectWatch{publisher: p, prefix: resource.Prefix, keys: map[logicalcluster.Name]map[controller.Request]bool{}, cancel: func() {}}
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
func (f *objectWatch) remove(key controller.Request) (last bool) {
	delete(f.keys[key.ClusterName], key)
	if len(f.keys[key.ClusterName]) == 0 {
		delete(f.keys, key.ClusterName)
	}
	if len(f.keys) > 0 {
		return false
	}
	f.cancel()
	return true
}

// run watches until the context ends.
func (f *objectWatch) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := f.watchOnce(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The watch of objects of cached resources ended, restarting it", "prefix", f.prefix, "reason", err)
		}
	}, watchRetry)
}

// watchOnce runs one watch to its end. It first enqueues all ClusterCachedResources, as earlier changes were not
// observed.
func (f *objectWatch) watchOnce(ctx context.Context) error {
	registry := f.publisher.cfg.Registry
	changed := registry.Changed()
	var resource *storage.Resource
	for _, stored := range registry.AllStorages() {
		if stored.Prefix == f.prefix {
			resource = stored
		}
	}
	if resource == nil { // its last definition was deleted, and may be recreated
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return nil
	}
	stream, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return err
	}
	defer stream.Stop()
	synced := false
	for event := range stream.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		switch {
		case event.Type == watch.Bookmark && !synced:
			synced = true
			f.enqueue(logicalcluster.Wildcard)
		case ok && synced && event.Type != watch.Bookmark:
			f.enqueue(logicalcluster.Of(object))
		}
	}
	return nil
}

// enqueue enqueues the ClusterCachedResources of a logical cluster, or all.
func (f *objectWatch) enqueue(cluster logicalcluster.Name) {
	f.publisher.mu.Lock()
	defer f.publisher.mu.Unlock()
	clusters := []logicalcluster.Name{cluster}
	if cluster.IsWildcard() {
		clusters = slices.Collect(maps.Keys(f.keys))
	}
	for _, cluster := range clusters {
		for key := range f.keys[cluster] {
			f.publisher.changeQueue.add(key)
		}
	}
}
