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
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// table is what is known of one resource.
type table struct {
	mirror   *Mirror
	resource client.Resource
	own      *owned

	mu sync.RWMutex
	// objects are those of other shards by name, clusters the same by logical cluster, in no order. A logical cluster stands
	// in it only while there is an object.
	objects  map[name]*entry
	clusters map[logicalcluster.Name][]*entry
	watchers map[*watcher]struct{}
	// at is how far the stream has come; zero before the first list.
	at client.Position
	// unseen counts the entries that are not in the cache of the stream.
	unseen int
	// unknown is why absence proves nothing; nil when it does.
	unknown error
	// reflector is nil before run.
	reflector *reflector.Reflector
	// relisting is set from relist until the list is done.
	relisting bool
	// refused are the shards of which something was not kept since the last list.
	refused map[string]bool
}

// name is what readers know an object by.
type name struct {
	cluster         logicalcluster.Name
	namespace, name string
}

// entry is one object of another shard.
type entry struct {
	shard string
	obj   runtime.Object
	// version is "<incarnation>/<resource version>" of the cache: what has the same is the same.
	version string
	// next is the object of the same name of the next shard, in the order of shards.
	next *entry
	// index is where the entry is in table.clusters.
	index int
	// unseen says that the object was known before, and is not in the cache that the stream reads now.
	unseen bool
}

// key returns what the object is known by. Its strings are those of the object, so that nothing is kept twice.
func (e *entry) key() client.Key {
	obj, err := meta.Accessor(e.obj)
	if err != nil {
		return client.Key{} // it was decoded by its metadata
	}
	return client.Key{Shard: e.shard, Cluster: logicalcluster.Of(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

var errNeverHeard = errors.New("nothing was heard of the cache server since this shard was set up")

func newTable(m *Mirror, resource client.Resource) *table {
	return &table{
		mirror: m, resource: resource, own: newOwned(), unknown: errNeverHeard,
		objects: map[name]*entry{}, clusters: map[logicalcluster.Name][]*entry{}, watchers: map[*watcher]struct{}{},
	}
}

func (t *table) get(of name) (runtime.Object, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.objects[of]; e != nil {
		return e.obj, true
	}
	return nil, false
}

func (t *table) list(cluster logicalcluster.Name) []runtime.Object {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !cluster.IsWildcard() {
		return appendObjects(nil, t.clusters[cluster])
	}
	return t.all()
}

// all returns all objects. The lock is held.
func (t *table) all() []runtime.Object {
	objects := make([]runtime.Object, 0, len(t.objects))
	for _, entries := range t.clusters {
		objects = appendObjects(objects, entries)
	}
	return objects
}

// shown returns one object of each name, but all where readers tell shards apart. The lock is held.
func (t *table) shown() []runtime.Object {
	if storage.OnlyElsewhere(t.resource.GroupResource()) {
		return t.all()
	}
	objects := make([]runtime.Object, 0, len(t.objects))
	for _, e := range t.objects {
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

// each calls a function with all entries, which must not change the table. The lock is held.
func (t *table) each(do func(*entry)) {
	for _, entries := range t.clusters {
		for _, e := range entries {
			do(e)
		}
	}
}

// find returns an entry, or nil. The lock is held.
func (t *table) find(key client.Key) *entry {
	e := t.objects[named(key)]
	for e != nil && e.shard != key.Shard {
		e = e.next
	}
	return e
}

func named(key client.Key) name { return name{key.Cluster, key.Namespace, key.Name} }

// put keeps an object and tells the watchers. The lock is held.
func (t *table) put(shard, version string, obj runtime.Object) {
	added := &entry{shard: shard, obj: obj, version: version}
	key := added.key()
	if e := t.find(key); e != nil {
		t.see(e)
		if e.version != version {
			// The key of the map goes on holding strings of the former object, which are the same.
			e.obj, e.version = obj, version
			if !storage.OnlyElsewhere(t.resource.GroupResource()) {
				obj = t.objects[named(key)].obj
			}
			t.changed(key, watch.Modified, obj)
		}
		return
	}
	before := t.objects[named(key)]
	if before == nil || before.shard > shard {
		added.next = before
		t.objects[named(key)] = added
	} else {
		for before.next != nil && before.next.shard < shard {
			before = before.next
		}
		before.next, added.next = added, before.next
	}
	t.mirror.taken.add(shard, 1)
	added.index = len(t.clusters[key.Cluster])
	t.clusters[key.Cluster] = append(t.clusters[key.Cluster], added)
	t.came(key, added)
}

// came tells of a new entry. Where several shards have an object of one name, one object changes into another for who
// does not tell shards apart.
func (t *table) came(key client.Key, e *entry) {
	switch {
	case storage.OnlyElsewhere(t.resource.GroupResource()), t.objects[named(key)] == e && e.next == nil:
		t.changed(key, watch.Added, e.obj)
	default:
		t.changed(key, watch.Modified, t.objects[named(key)].obj)
	}
}

// went tells of an entry that was removed: as came does.
func (t *table) went(key client.Key, e *entry) {
	if left := t.objects[named(key)]; left != nil && !storage.OnlyElsewhere(t.resource.GroupResource()) {
		t.changed(key, watch.Modified, left.obj)
		return
	}
	t.changed(key, watch.Deleted, e.obj)
}

// see notes that an entry is in the cache. The lock is held.
func (t *table) see(e *entry) {
	if e.unseen {
		e.unseen = false
		t.unseen--
	}
}

// remove forgets an object and tells the watchers. The lock is held.
func (t *table) remove(key client.Key) {
	e := t.find(key)
	if e == nil {
		return
	}
	t.see(e)
	t.mirror.taken.add(e.shard, -1)
	switch first := t.objects[named(key)]; {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next != nil:
		t.objects[named(key)] = e.next
	default:
		delete(t.objects, named(key))
	}
	entries := t.clusters[key.Cluster]
	last := len(entries) - 1
	entries[e.index] = entries[last]
	entries[e.index].index = e.index
	entries[last] = nil
	if t.clusters[key.Cluster] = entries[:last]; last == 0 {
		delete(t.clusters, key.Cluster)
	}
	t.went(key, e)
}

func (t *table) changed(key client.Key, change watch.EventType, obj runtime.Object) {
	for w := range t.watchers {
		w.add(watch.Event{Type: change, Object: obj})
	}
	t.mirror.touch(t.resource.GroupResource(), key)
}
