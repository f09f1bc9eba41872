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

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 200 * time.Millisecond

// follower sees changes of the objects of one storage, in all logical clusters, for those that offer any.
type follower struct {
	publisher *Publisher
	// prefix is that of the storage.
	prefix string
	// offers are those of each logical cluster. The publisher's lock guards them.
	offers map[logicalcluster.Name]map[controller.Key]bool
	end    context.CancelFunc
}

// follow has an offer looked at when objects of its resource change.
func (p *Publisher) follow(key controller.Key, resource *storage.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for prefix, f := range p.followers { // one of several definitions may serve it by now
		if prefix != resource.Prefix && f.remove(key) {
			delete(p.followers, prefix)
		}
	}
	f := p.followers[resource.Prefix]
	if f == nil {
		f = &follower{publisher: p, prefix: resource.Prefix, offers: map[logicalcluster.Name]map[controller.Key]bool{}, end: func() {}}
		p.followers[resource.Prefix] = f
		p.start(f)
	}
	if f.offers[key.Cluster] == nil {
		f.offers[key.Cluster] = map[controller.Key]bool{}
	}
	f.offers[key.Cluster][key] = true
}

// start begins to follow, if this replica publishes. The lock is held.
func (p *Publisher) start(f *follower) {
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

// remove takes an offer out, and ends with the last, which it tells. The publisher's lock is held.
func (f *follower) remove(key controller.Key) (last bool) {
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

// run follows until the context ends.
func (f *follower) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The watch of objects that are offered ended, starting it again", "prefix", f.prefix, "reason", err)
		}
	}, followAgain)
}

// follow runs one watch to its end. All offers are looked at when it has begun: nobody told of changes before.
func (f *follower) follow(ctx context.Context) error {
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

// tell has the offers of a logical cluster looked at, or those of all.
func (f *follower) tell(cluster logicalcluster.Name) {
	f.publisher.mu.Lock()
	defer f.publisher.mu.Unlock()
	clusters := []logicalcluster.Name{cluster}
	if cluster.IsWildcard() {
		clusters = slices.Collect(maps.Keys(f.offers))
	}
	for _, cluster := range clusters {
		for key := range f.offers[cluster] {
			f.publisher.news.tell(key)
		}
	}
}
