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

// EventHandler is told what happens in all storages. Calls for one storage come one after the other, calls for different
// storages at the same time. They must be quick, and must not change the object: it may be shared with the watch cache.
type EventHandler interface {
	// OnListStart says that all objects of a storage follow as Added, because its watch starts, or starts anew.
	OnListStart(*storage.Resource)
	// OnEvent is told of one object that was Added, Modified or Deleted. Its cluster is logicalcluster.Of.
	OnEvent(*storage.Resource, watch.EventType, metav1.Object)
	// OnListDone says that all objects have been told of since Listing: others that were known before are gone.
	OnListDone(*storage.Resource)
	// OnStorageRemoved says that a storage is no more, and its objects with it.
	OnStorageRemoved(*storage.Resource)
}

// ignored are resources that nobody collects or counts: short-lived, many, and without a watch cache.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// Informer watches all storages of a registry.
type Informer struct {
	registry *storage.Registry
	handlers []EventHandler

	mu sync.Mutex
	// watches are the storages that are watched now.
	watches map[*storage.Resource]*storageWatch
	// stopping are the watches that nobody wants and that have not ended, by the prefix of their storage.
	stopping map[string]*storageWatch
}

type storageWatch struct {
	cancel context.CancelFunc
	synced bool
	// done is closed when the listeners have been told all of this watch, its end too.
	done chan struct{}
}

// New returns a follower that tells the listeners, in their order.
func New(registry *storage.Registry, handlers ...EventHandler) *Informer {
	return &Informer{registry: registry, handlers: handlers, watches: map[*storage.Resource]*storageWatch{}, stopping: map[string]*storageWatch{}}
}

// Run follows until the context ends and every watch has ended.
func (f *Informer) Run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for ctx.Err() == nil {
		changed := f.registry.Changed()
		f.syncWatches(ctx, &watches)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// HasSynced tells whether every storage of the shard has told all its objects at least once.
func (f *Informer) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, resource := range f.registry.AllStorages() {
		if s := f.watches[resource]; !ignored[resource.GVR.GroupResource()] && (s == nil || !s.synced) {
			return false
		}
	}
	return true
}

// syncWatches starts and stops watches, so that they are those of the registry's storages. A storage that takes the place of
// another one, over the same objects, is watched when the listeners have been told of the other's end: that would
// otherwise make them forget what the new watch has told them.
func (f *Informer) syncWatches(ctx context.Context, watches *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	desired := map[*storage.Resource]bool{}
	for _, resource := range f.registry.AllStorages() {
		if !ignored[resource.GVR.GroupResource()] {
			desired[resource] = true
		}
	}
	for resource, s := range f.watches {
		if !desired[resource] {
			s.cancel()
			delete(f.watches, resource)
			f.stopping[resource.Prefix] = s
		}
	}
	for resource := range desired {
		if f.watches[resource] != nil {
			continue
		}
		watchCtx, cancel := context.WithCancel(ctx)
		s, previous := &storageWatch{cancel: cancel, done: make(chan struct{})}, f.stopping[resource.Prefix]
		f.watches[resource] = s
		watches.Go(func() {
			defer f.finishWatch(resource, s)
			if previous != nil {
				<-previous.done
			}
			f.watch(watchCtx, resource)
		})
	}
}

// finishWatch tells that a watch has ended for good.
func (f *Informer) finishWatch(resource *storage.Resource, s *storageWatch) {
	s.cancel()
	for _, handler := range f.handlers {
		handler.OnStorageRemoved(resource)
	}
	close(s.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping[resource.Prefix] == s {
		delete(f.stopping, resource.Prefix)
	}
}

// watch keeps a watch of one storage open until the context ends.
func (f *Informer) watch(ctx context.Context, resource *storage.Resource) {
	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 10 * time.Second}
	}
	backoff := newBackoff()
	for ctx.Err() == nil {
		synced, err := f.watchOnce(ctx, resource)
		if ctx.Err() != nil {
			return
		}
		if synced {
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
func (f *Informer) watchOnce(ctx context.Context, resource *storage.Resource) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", resource.Prefix, err)
	}
	defer events.Stop()
	for _, handler := range f.handlers {
		handler.OnListStart(resource)
	}
	for event := range events.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return synced, fmt.Errorf("watching %s: %w", resource.Prefix, err)
			}
			for _, handler := range f.handlers {
				handler.OnEvent(resource, event.Type, object)
			}
		case watch.Bookmark:
			if !synced {
				synced = true
				f.markSynced(resource)
			}
		case watch.Error:
			return synced, fmt.Errorf("watching %s: %w", resource.Prefix, apierrors.FromObject(event.Object))
		}
	}
	return synced, nil
}

func (f *Informer) markSynced(resource *storage.Resource) {
	for _, handler := range f.handlers {
		handler.OnListDone(resource)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.watches[resource]; s != nil {
		s.synced = true
	}
}
