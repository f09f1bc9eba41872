package hierarchy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// objectRef identifies an object in both caches.
type objectRef struct {
	gvr schema.GroupVersionResource
	key client.Key
}

// cacheState is the observed state of one of the two caches.
type cacheState struct {
	name string
	// changed is called with the items to sync.
	changed func(items ...objectRef)
	now     func() time.Time

	complete client.Completeness

	lock         sync.Mutex
	objects      map[schema.GroupVersionResource]map[client.Key]summary
	positions    map[schema.GroupVersionResource]client.Position
	disconnected map[schema.GroupVersionResource]bool
	// deleted are the objects whose deletion was observed, until it is synced: there is only one event.
	deleted map[objectRef]bool
	// heartbeats is when the report of each shard changed last.
	heartbeats map[string]time.Time
}

func newCacheState(name string, now func() time.Time, changed func(items ...objectRef)) *cacheState {
	return &cacheState{
		name: name, now: now, changed: changed,
		objects: map[schema.GroupVersionResource]map[client.Key]summary{}, positions: map[schema.GroupVersionResource]client.Position{},
		disconnected: map[schema.GroupVersionResource]bool{}, deleted: map[objectRef]bool{}, heartbeats: map[string]time.Time{},
	}
}

// get returns an object, and whether its absence means that it is deleted.
func (s *cacheState) get(ref objectRef) (found summary, deleted bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	found = s.objects[ref.gvr][ref.key]
	return found, !found.exists && (s.deleted[ref] || s.complete.IsCompleteAt(ref.key.Shard, s.positions[ref.gvr]))
}

// clearDeletion removes an observed deletion.
func (s *cacheState) clearDeletion(ref objectRef) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.deleted, ref)
}

// report returns the report of a shard, and when it changed last.
func (s *cacheState) report(shard string) (summary, time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.objects[client.Reports][reportKey(shard)], s.heartbeats[shard]
}

// connected returns whether the watch of a resource is open, so that the observed objects are current.
func (s *cacheState) connected(gvr schema.GroupVersionResource) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.objects[gvr] != nil && !s.disconnected[gvr]
}

// hasSynced returns whether that many watches are open, all of the same store.
func (s *cacheState) hasSynced(watches int) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.objects) < watches || len(s.disconnected) > 0 {
		return false
	}
	for _, at := range s.positions {
		if at.Incarnation != s.positions[client.Reports].Incarnation {
			return false
		}
	}
	return true
}

// forEach calls a function with every object while holding the lock.
func (s *cacheState) forEach(callback func(of objectRef)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for gvr, objects := range s.objects {
		for key := range objects {
			callback(objectRef{gvr, key})
		}
	}
}

// eventHandler updates a cacheState from the reflector of one resource. It implements client.EventHandler.
type eventHandler struct {
	*cacheState
	gvr schema.GroupVersionResource
	log klog.Logger
}

// OnReplace implements client.EventHandler.
func (e eventHandler) OnReplace(objects []*client.Object, at client.Position) {
	if e.gvr == client.Reports {
		e.complete.OnReplace(objects, at)
	}
	known := make(map[client.Key]summary, len(objects))
	for _, object := range objects {
		known[object.Key] = e.summarize(object)
	}
	e.lock.Lock()
	before := e.objects[e.gvr]
	e.objects[e.gvr], e.positions[e.gvr] = map[client.Key]summary{}, at
	var items []objectRef
	for key, one := range known {
		e.put(key, one, before[key])
		items = append(items, objectRef{e.gvr, key})
	}
	for key := range before {
		if !known[key].exists {
			items = append(items, objectRef{e.gvr, key})
		}
	}
	e.lock.Unlock()
	e.changed(items...)
}

// OnEvent implements client.EventHandler.
func (e eventHandler) OnEvent(change watch.EventType, object *client.Object, at client.Position) {
	if e.gvr == client.Reports {
		e.complete.OnEvent(change, object, at)
	}
	var known summary
	if object != nil && change != watch.Deleted {
		known = e.summarize(object)
	}
	e.lock.Lock()
	e.positions[e.gvr] = at
	if object == nil {
		e.lock.Unlock()
		return
	}
	ref := objectRef{e.gvr, object.Key}
	if change == watch.Deleted {
		delete(e.objects[e.gvr], object.Key)
		e.deleted[ref] = true
	} else {
		delete(e.deleted, ref)
		e.put(object.Key, known, e.objects[e.gvr][object.Key])
	}
	e.lock.Unlock()
	e.changed(ref)
}

// put stores an object and records heartbeats. Callers must hold the lock.
func (e eventHandler) put(key client.Key, known, before summary) {
	e.objects[e.gvr][key] = known
	if e.gvr == client.Reports && key == reportKey(key.Shard) && known.digest != before.digest {
		e.heartbeats[key.Shard] = e.now()
	}
}

// summarize returns the summary of an object.
func (e eventHandler) summarize(object *client.Object) summary {
	known, err := summarize(object)
	if err != nil {
		e.log.Error(err, "Failed to decode an object of the cache; it is not synchronized", "resource", e.gvr.GroupResource(), "key", object.Key)
		return summary{exists: true}
	}
	return known
}

// OnConnect implements client.EventHandler.
func (e eventHandler) OnConnect() {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.disconnected[e.gvr] {
		delete(e.disconnected, e.gvr)
		if len(e.disconnected) == 0 {
			e.log.Info("All watches of the cache are open again", "cache", e.name)
		}
	}
}

// OnDisconnect implements client.EventHandler.
func (e eventHandler) OnDisconnect(err error) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if len(e.disconnected) == 0 {
		e.log.Info("Failed to watch a cache, will retry", "cache", e.name, "err", err)
	}
	e.disconnected[e.gvr] = true
}

// reportKey is the key of the report of a shard.
func reportKey(shard string) client.Key {
	return client.Key{Shard: shard, Cluster: logicalcluster.Root, Name: shard}
}
