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
	// offers are those of each logical cluster. The publisher's lock guards them.
	offers map[logicalcluster.Name]map[controller.Key]bool
	end    context.CancelFunc
}

// watchObjects enqueues a ClusterCachedResource when objects of its resource change.
func (p *Publisher) watchObjects(key controller.Key, resource *storage.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for prefix, f := range p.watches { // one of several definitions may serve it by now
		if prefix != resource.Prefix && f.remove(key) {
			delete(p.watches, prefix)
		}
	}
	f := p.watches[resource.Prefix]
	if f == nil {
		f = &objectWatch{publisher: p, prefix: resource.Prefix, offers: map[logicalcluster.Name]map[controller.Key]bool{}, end: func() {}}
		p.watches[resource.Prefix] = f
		p.start(f)
	}
	if f.offers[key.Cluster] == nil {
		f.offers[key.Cluster] = map[controller.Key]bool{}
	}
	f.offers[key.Cluster][key] = true
}

// start starts a watch if this replica publishes. Callers must hold mu.
func (p *Publisher) start(f *objectWatch) {
	if p.running == nil || p.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.running)
	f.end = cancel
	p.ending.Go(func() {
		defer cancel()
		f.run(ctx)
	})
}

// remove removes a ClusterCachedResource, and ends the watch with the last one. Callers must hold the publisher's mu.
func (f *objectWatch) remove(key controller.Key) (last bool) {
	delete(f.offers[key.Cluster], key)
	if len(f.offers[key.Cluster]) == 0 {
		delete(f.offers, key.Cluster)
	}
	if len(f.offers) > 0 {
		return false
	}
	f.end()
	return true
}

// run watches until the context ends.
func (f *objectWatch) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := f.watchObjects(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The watch of objects that are offered ended, starting it again", "prefix", f.prefix, "reason", err)
		}
	}, watchRetry)
}

// follow runs one watch to its end. All offers are looked at when it has begun: nobody told of changes before.
func (f *objectWatch) watchObjects(ctx context.Context) error {
	registry := f.publisher.cfg.Registry
	changed := registry.Changed()
	var resource *storage.Resource
	for _, stored := range registry.Stored() {
		if stored.Prefix == f.prefix {
			resource = stored
		}
	}
	if resource == nil { // its last definition is gone, but may come back
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
	begun := false
	for event := range stream.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		switch {
		case event.Type == watch.Bookmark && !begun:
			begun = true
			f.tell(logicalcluster.Wildcard)
		case ok && begun && event.Type != watch.Bookmark:
			f.tell(logicalcluster.Of(object))
		}
	}
	return nil
}

// tell enqueues the ClusterCachedResources of a logical cluster, or all.
func (f *objectWatch) tell(cluster logicalcluster.Name) {
	f.publisher.mu.Lock()
	defer f.publisher.mu.Unlock()
	clusters := []logicalcluster.Name{cluster}
	if cluster.IsWildcard() {
		clusters = slices.Collect(maps.Keys(f.offers))
	}
	for _, cluster := range clusters {
		for key := range f.offers[cluster] {
			f.publisher.changeQueue.tell(key)
		}
	}
}
