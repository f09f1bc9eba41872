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

// item is one object of one resource, wherever it stands.
type item struct {
	gvr schema.GroupVersionResource
	key client.Key
}

// side is what is known of one of the two caches.
type side struct {
	name string
	// changed is told which items to look at.
	changed func(items ...item)
	now     func() time.Time

	complete client.Completeness

	lock    sync.Mutex
	objects map[schema.GroupVersionResource]map[client.Key]copied
	at      map[schema.GroupVersionResource]client.Position
	broken  map[schema.GroupVersionResource]bool
	// gone holds objects whose deletion was seen, until it was acted on. The stream says each once.
	gone map[item]bool
	// beats holds when the report of each shard changed last.
	beats map[string]time.Time
}

func newSide(name string, now func() time.Time, changed func(items ...item)) *side {
	return &side{
		name: name, now: now, changed: changed,
		objects: map[schema.GroupVersionResource]map[client.Key]copied{}, at: map[schema.GroupVersionResource]client.Position{},
		broken: map[schema.GroupVersionResource]bool{}, gone: map[item]bool{}, beats: map[string]time.Time{},
	}
}

// get returns an object as far as it is known, and whether its absence is its end.
func (s *side) get(of item) (found copied, gone bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	found = s.objects[of.gvr][of.key]
	return found, !found.exists && (s.gone[of] || s.complete.At(of.key.Shard, s.at[of.gvr]))
}

// settled forgets that a deletion was seen.
func (s *side) settled(of item) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.gone, of)
}

// report returns what is known of the report of a shard, and when it changed last.
func (s *side) report(shard string) (copied, time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.objects[client.Reports][reportKey(shard)], s.beats[shard]
}

// open tells whether the stream of a resource is open, so that what is known is about what there is.
func (s *side) open(gvr schema.GroupVersionResource) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.objects[gvr] != nil && !s.broken[gvr]
}

// whole tells whether that many streams are open, all of the same store.
func (s *side) whole(streams int) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.objects) < streams || len(s.broken) > 0 {
		return false
	}
	for _, at := range s.at {
		if at.Incarnation != s.at[client.Reports].Incarnation {
			return false
		}
	}
	return true
}

// visit calls back with every object, while nothing changes.
func (s *side) visit(callback func(of item)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for gvr, objects := range s.objects {
		for key := range objects {
			callback(item{gvr, key})
		}
	}
}

// follower feeds a side with the stream of one resource.
type follower struct {
	*side
	gvr schema.GroupVersionResource
	log klog.Logger
}

// OnReplace implements client.EventHandler.
func (f follower) OnReplace(objects []*client.Object, at client.Position) {
	if f.gvr == client.Reports {
		f.complete.OnReplace(objects, at)
	}
	known := make(map[client.Key]copied, len(objects))
	for _, object := range objects {
		known[object.Key] = f.read(object)
	}
	f.lock.Lock()
	before := f.objects[f.gvr]
	f.objects[f.gvr], f.at[f.gvr] = map[client.Key]copied{}, at
	var items []item
	for key, one := range known {
		f.put(key, one, before[key])
		items = append(items, item{f.gvr, key})
	}
	for key := range before {
		if !known[key].exists {
			items = append(items, item{f.gvr, key})
		}
	}
	f.lock.Unlock()
	f.changed(items...)
}

// OnEvent implements client.EventHandler.
func (f follower) OnEvent(change watch.EventType, object *client.Object, at client.Position) {
	if f.gvr == client.Reports {
		f.complete.OnEvent(change, object, at)
	}
	var known copied
	if object != nil && change != watch.Deleted {
		known = f.read(object)
	}
	f.lock.Lock()
	f.at[f.gvr] = at
	if object == nil {
		f.lock.Unlock()
		return
	}
	of := item{f.gvr, object.Key}
	if change == watch.Deleted {
		delete(f.objects[f.gvr], object.Key)
		f.gone[of] = true
	} else {
		delete(f.gone, of)
		f.put(object.Key, known, f.objects[f.gvr][object.Key])
	}
	f.lock.Unlock()
	f.changed(of)
}

// put remembers an object in place of what it was before. The lock is held.
func (f follower) put(key client.Key, known, before copied) {
	f.objects[f.gvr][key] = known
	if f.gvr == client.Reports && key == reportKey(key.Shard) && known.digest != before.digest {
		f.beats[key.Shard] = f.now()
	}
}

// read returns what is to be known of an object.
func (f follower) read(object *client.Object) copied {
	known, err := know(object)
	if err != nil {
		f.log.Error(err, "An object of the cache cannot be read; it stays where it is", "resource", f.gvr.GroupResource(), "key", object.Key)
		return copied{exists: true}
	}
	return known
}

// OnConnect implements client.EventHandler.
func (f follower) OnConnect() {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.broken[f.gvr] {
		delete(f.broken, f.gvr)
		if len(f.broken) == 0 {
			f.log.Info("All streams of the cache are open again", "cache", f.name)
		}
	}
}

// OnDisconnect implements client.EventHandler.
func (f follower) OnDisconnect(err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if len(f.broken) == 0 {
		f.log.Info("A cache cannot be followed; what is known of it stays, and more tries follow", "cache", f.name, "reason", err)
	}
	f.broken[f.gvr] = true
}

// reportKey is the key of the report of a shard.
func reportKey(shard string) client.Key {
	return client.Key{Shard: shard, Cluster: logicalcluster.Root, Name: shard}
}
