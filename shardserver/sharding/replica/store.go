package replica

import (
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/reflector"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// store holds the objects of other shards of one resource.
type store struct {
	informer  *Informer
	resource  client.Resource
	published *publishedObjects

	mu sync.RWMutex
	// objects are the objects by name, clusters the same by logical cluster, unordered. A logical cluster is removed
	// with its last object.
	objects  map[objectKey]*entry
	clusters map[logicalcluster.Name][]*entry
	watchers map[*watcher]struct{}
	// at is the position of the reflector; zero before the first list.
	at client.Position
	// unconfirmed counts the entries that the reflector has not seen in the cache.
	unconfirmed int
	// notSynced is the reason why absence of an object proves nothing, or nil.
	notSynced error
	// reflector is nil before run.
	reflector *reflector.Reflector
	// relisting is set from relist until the list is done.
	relisting bool
	// overQuota are the shards of which objects were dropped since the last list.
	overQuota map[string]bool
}

// objectKey is the key of readers.
type objectKey struct {
	cluster         logicalcluster.Name
	namespace, name string
}

// entry is one object of another shard.
type entry struct {
	shard string
	obj   runtime.Object
	// version is "<incarnation>/<resource version>" of the cache. Entries of equal version are equal.
	version string
	// next is the entry of the same name of the next shard by name.
	next *entry
	// index is the position in store.clusters.
	index int
	// unconfirmed entries were stored earlier, but are not in the cache as far as the reflector has read it.
	unconfirmed bool
}

// key returns the key of the entry. It shares the strings of the object to save memory.
func (e *entry) key() client.Key {
	obj, err := meta.Accessor(e.obj)
	if err != nil {
		return client.Key{} // unreachable: decode reads the metadata
	}
	return client.Key{Shard: e.shard, Cluster: logicalcluster.Of(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

var errNeverListed = errors.New("the cache server has not been listed since this shard was set up")

func newStore(inf *Informer, resource client.Resource) *store {
	return &store{
		informer: inf, resource: resource, published: newPublishedObjects(), notSynced: errNeverListed,
		objects: map[objectKey]*entry{}, clusters: map[logicalcluster.Name][]*entry{}, watchers: map[*watcher]struct{}{},
	}
}

func (s *store) get(key objectKey) (runtime.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.objects[key]; e != nil {
		return e.obj, true
	}
	return nil, false
}

func (s *store) list(cluster logicalcluster.Name) []runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !cluster.IsWildcard() {
		return appendObjects(nil, s.clusters[cluster])
	}
	return s.all()
}

// all returns all objects. Callers must hold mu.
func (s *store) all() []runtime.Object {
	objects := make([]runtime.Object, 0, len(s.objects))
	for _, entries := range s.clusters {
		objects = appendObjects(objects, entries)
	}
	return objects
}

// listForWatch returns one object of each name, or the objects of all shards where readers distinguish shards. Callers
// must hold mu.
func (s *store) listForWatch() []runtime.Object {
	if s.resource.IsRemoteOnly() {
		return s.all()
	}
	objects := make([]runtime.Object, 0, len(s.objects))
	for _, e := range s.objects {
		objects = append(objects, e.obj)
	}
	return objects
}

func appendObjects(objects []runtime.Object, entries []*entry) []runtime.Object {
	for _, e := range entries {
		objects = append(objects, e.obj)
	}
	return objects
}

// forEach calls a function with all entries, which must not change the store. Callers must hold mu.
func (s *store) forEach(fn func(*entry)) {
	for _, entries := range s.clusters {
		for _, e := range entries {
			fn(e)
		}
	}
}

// find returns an entry, or nil. Callers must hold mu.
func (s *store) find(key client.Key) *entry {
	e := s.objects[objectKeyOf(key)]
	for e != nil && e.shard != key.Shard {
		e = e.next
	}
	return e
}

func objectKeyOf(key client.Key) objectKey { return objectKey{key.Cluster, key.Namespace, key.Name} }

// put stores an object and notifies the watchers. Callers must hold mu.
func (s *store) put(shard, version string, obj runtime.Object) {
	added := &entry{shard: shard, obj: obj, version: version}
	key := added.key()
	if e := s.find(key); e != nil {
		s.confirm(e)
		if e.version != version {
			// The map keeps the equal key strings of the previous object.
			e.obj, e.version = obj, version
			if !s.resource.IsRemoteOnly() {
				obj = s.objects[objectKeyOf(key)].obj
			}
			s.notify(key, watch.Modified, obj)
		}
		return
	}
	before := s.objects[objectKeyOf(key)]
	if before == nil || before.shard > shard {
		added.next = before
		s.objects[objectKeyOf(key)] = added
	} else {
		for before.next != nil && before.next.shard < shard {
			before = before.next
		}
		before.next, added.next = added, before.next
	}
	s.informer.quota.add(shard, 1)
	added.index = len(s.clusters[key.Cluster])
	s.clusters[key.Cluster] = append(s.clusters[key.Cluster], added)
	s.notifyAdded(key, added)
}

// notifyAdded notifies the watchers of a new entry. Where several shards publish one name, watchers that do not
// distinguish shards see one object change into another.
func (s *store) notifyAdded(key client.Key, e *entry) {
	switch {
	case s.resource.IsRemoteOnly(), s.objects[objectKeyOf(key)] == e && e.next == nil:
		s.notify(key, watch.Added, e.obj)
	default:
		s.notify(key, watch.Modified, s.objects[objectKeyOf(key)].obj)
	}
}

// notifyRemoved notifies the watchers of a removed entry, as notifyAdded does.
func (s *store) notifyRemoved(key client.Key, e *entry) {
	if left := s.objects[objectKeyOf(key)]; left != nil && !s.resource.IsRemoteOnly() {
		s.notify(key, watch.Modified, left.obj)
		return
	}
	s.notify(key, watch.Deleted, e.obj)
}

// confirm marks an entry as seen in the cache. Callers must hold mu.
func (s *store) confirm(e *entry) {
	if e.unconfirmed {
		e.unconfirmed = false
		s.unconfirmed--
	}
}

// remove deletes an object and notifies the watchers. Callers must hold mu.
func (s *store) remove(key client.Key) {
	e := s.find(key)
	if e == nil {
		return
	}
	s.confirm(e)
	s.informer.quota.add(e.shard, -1)
	switch first := s.objects[objectKeyOf(key)]; {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next != nil:
		s.objects[objectKeyOf(key)] = e.next
	default:
		delete(s.objects, objectKeyOf(key))
	}
	entries := s.clusters[key.Cluster]
	last := len(entries) - 1
	entries[e.index] = entries[last]
	entries[e.index].index = e.index
	entries[last] = nil
	if s.clusters[key.Cluster] = entries[:last]; last == 0 {
		delete(s.clusters, key.Cluster)
	}
	s.notifyRemoved(key, e)
}

func (s *store) notify(key client.Key, change watch.EventType, obj runtime.Object) {
	for w := range s.watchers {
		w.add(watch.Event{Type: change, Object: obj})
	}
	s.informer.markDirty(s.resource.GroupResource(), key)
}
