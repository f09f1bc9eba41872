package dynamic

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// presence knows which logical clusters have any objects of a resource, from one watch of all of them: a set of names
// for each cluster that has some, nothing for all others. It spares every write of the shard four lists, which would
// find nothing but cost a few percent of the write. While it does not know, it says that there may be some.
type presence struct {
	mu    sync.RWMutex
	names map[logicalcluster.Name]map[string]struct{}
	known bool
}

// in tells whether the logical cluster may have objects.
func (p *presence) in(cluster logicalcluster.Name) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return !p.known || len(p.names[cluster]) > 0
}

// run follows the resource until the context ends.
func (p *presence) run(ctx context.Context, resource watchable) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		err := p.follow(ctx, resource)
		p.forget()
		klog.FromContext(ctx).V(2).Info("The watch of admission configurations ended", "resource", resource.Resource(), "reason", err)
	}, time.Second, 0.5, true)
}

// watchable is a storage.Reader of any type.
type watchable interface {
	Resource() schema.GroupResource
	WatchAll(ctx context.Context) (watch.Interface, error)
}

// follow handles one watch until it ends.
func (p *presence) follow(ctx context.Context, resource watchable) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := resource.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return err
			}
			p.note(logicalcluster.Of(object), object.GetName(), event.Type != watch.Deleted)
		case watch.Bookmark:
			p.settle() // the first one says that everything that existed was sent
		case watch.Error:
			return nil
		}
	}
	return nil
}

func (p *presence) note(cluster logicalcluster.Name, name string, exists bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.names[cluster]
	switch {
	case exists && of == nil:
		if p.names == nil {
			p.names = map[logicalcluster.Name]map[string]struct{}{}
		}
		p.names[cluster] = map[string]struct{}{name: {}}
	case exists:
		of[name] = struct{}{}
	default:
		if delete(of, name); len(of) == 0 {
			delete(p.names, cluster)
		}
	}
}

func (p *presence) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = true
}

func (p *presence) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.names = false, nil
}
