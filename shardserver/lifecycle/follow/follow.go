// Package follow tells controllers of every object that is stored on the shard, of whatever resource: one wildcard watch
// per storage, in all logical clusters, however many listen. Storages of custom resources come and go; the watches
// follow. Nothing is kept but which storages have been listed; what is worth remembering is the listeners' to say.
package follow

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Listener is told what happens in all storages. Calls for one storage come one after the other, calls for different
// storages at the same time. They must be quick, and must not change the object: it may be shared with the watch cache.
type Listener interface {
	// Listing says that all objects of a storage follow as Added, because its watch starts, or starts anew.
	Listing(*storage.Resource)
	// Observe is told of one object that was Added, Modified or Deleted. Its cluster is logicalcluster.Of.
	Observe(*storage.Resource, watch.EventType, metav1.Object)
	// Listed says that all objects have been told of since Listing: others that were known before are gone.
	Listed(*storage.Resource)
	// Dropped says that a storage is no more, and its objects with it.
	Dropped(*storage.Resource)
}

// ignored are resources that nobody collects or counts: short-lived, many, and without a watch cache.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// Follower watches all storages of a registry.
type Follower struct {
	registry  *storage.Registry
	listeners []Listener

	mu sync.Mutex
	// following are the storages that are watched now.
	following map[*storage.Resource]*stream
	// ending are the watches that nobody wants and that have not ended, by the prefix of their storage.
	ending map[string]*stream
}

type stream struct {
	cancel context.CancelFunc
	listed bool
	// ended is closed when the listeners have been told all of this watch, its end too.
	ended chan struct{}
}

// New returns a follower that tells the listeners, in their order.
func New(registry *storage.Registry, listeners ...Listener) *Follower {
	return &Follower{registry: registry, listeners: listeners, following: map[*storage.Resource]*stream{}, ending: map[string]*stream{}}
}

// Run follows until the context ends and every watch has ended.
func (f *Follower) Run(ctx context.Context) {
	var streams sync.WaitGroup
	defer streams.Wait()
	for ctx.Err() == nil {
		changed := f.registry.Changed()
		f.adapt(ctx, &streams)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// Synced tells whether every storage of the shard has told all its objects at least once.
func (f *Follower) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, resource := range f.registry.Stored() {
		if s := f.following[resource]; !ignored[resource.GVR.GroupResource()] && (s == nil || !s.listed) {
			return false
		}
	}
	return true
}

// adapt starts and stops watches, so that they are those of the registry's storages. A storage that takes the place of
// another one, over the same objects, is watched when the listeners have been told of the other's end: that would
// otherwise make them forget what the new watch has told them.
func (f *Follower) adapt(ctx context.Context, streams *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := map[*storage.Resource]bool{}
	for _, resource := range f.registry.Stored() {
		if !ignored[resource.GVR.GroupResource()] {
			wanted[resource] = true
		}
	}
	for resource, s := range f.following {
		if !wanted[resource] {
			s.cancel()
			delete(f.following, resource)
			f.ending[resource.Prefix] = s
		}
	}
	for resource := range wanted {
		if f.following[resource] != nil {
			continue
		}
		streamCtx, cancel := context.WithCancel(ctx)
		s, before := &stream{cancel: cancel, ended: make(chan struct{})}, f.ending[resource.Prefix]
		f.following[resource] = s
		streams.Go(func() {
			defer f.end(resource, s)
			if before != nil {
				<-before.ended
			}
			f.watch(streamCtx, resource)
		})
	}
}

// end tells that a watch has ended for good.
func (f *Follower) end(resource *storage.Resource, s *stream) {
	s.cancel()
	for _, listener := range f.listeners {
		listener.Dropped(resource)
	}
	close(s.ended)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending[resource.Prefix] == s {
		delete(f.ending, resource.Prefix)
	}
}

// watch keeps a watch of one storage open until the context ends.
func (f *Follower) watch(ctx context.Context, resource *storage.Resource) {
	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 10 * time.Second}
	}
	backoff := newBackoff()
	for ctx.Err() == nil {
		listed, err := f.watchOnce(ctx, resource)
		if ctx.Err() != nil {
			return
		}
		if listed {
			backoff = newBackoff()
		}
		klog.FromContext(ctx).V(2).Info("A watch over all logical clusters ended, starting it again", "resource", resource.GVR.GroupResource(), "prefix", resource.Prefix, "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// watchOnce hands on the events of one watch until it ends. It tells whether the watch delivered all that exists.
func (f *Follower) watchOnce(ctx context.Context, resource *storage.Resource) (listed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", resource.Prefix, err)
	}
	defer events.Stop()
	for _, listener := range f.listeners {
		listener.Listing(resource)
	}
	for event := range events.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return listed, fmt.Errorf("watching %s: %w", resource.Prefix, err)
			}
			for _, listener := range f.listeners {
				listener.Observe(resource, event.Type, object)
			}
		case watch.Bookmark:
			if !listed {
				listed = true
				f.markListed(resource)
			}
		case watch.Error:
			return listed, fmt.Errorf("watching %s: %w", resource.Prefix, apierrors.FromObject(event.Object))
		}
	}
	return listed, nil
}

func (f *Follower) markListed(resource *storage.Resource) {
	for _, listener := range f.listeners {
		listener.Listed(resource)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.following[resource]; s != nil {
		s.listed = true
	}
}
