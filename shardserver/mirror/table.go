package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// table is what is known of one resource.
type table struct {
	mirror   *Mirror
	resource client.Resource
	own      *owned

	mu sync.RWMutex
	// clusters have the objects of other shards. A logical cluster stands in it only while there is an object.
	clusters map[logicalcluster.Name]map[types.NamespacedName][]*entry
	watchers map[*watcher]struct{}
	// at is how far the stream has come; zero before the first list.
	at client.Position
	// unseen counts the entries that are not in the cache of the stream.
	unseen int
	// unknown is why absence proves nothing; nil when it does.
	unknown error
	// end ends the stream, after which it begins anew, with a list.
	end context.CancelFunc
	// relisting says that this was done, and no list has come since.
	relisting bool
	// nudged is when the stream was last told to try again at once.
	nudged time.Time
}

// entry is one object of another shard.
type entry struct {
	shard string
	obj   runtime.Object
	// version is "<incarnation>/<resource version>" of the cache: what has the same is the same.
	version string
	// unseen says that the object was known before, and is not in the cache that the stream reads now.
	unseen bool
}

// nudgeInterval keeps a stream that answers slowly from being ended over and over.
const nudgeInterval = 5 * time.Second

var errNeverHeard = errors.New("nothing was heard of the cache server since this shard was set up")

func newTable(m *Mirror, resource client.Resource) *table {
	return &table{
		mirror: m, resource: resource, own: newOwned(), unknown: errNeverHeard, end: func() {},
		clusters: map[logicalcluster.Name]map[types.NamespacedName][]*entry{}, watchers: map[*watcher]struct{}{},
	}
}

// run feeds the table until the context ends.
func (t *table) run(ctx context.Context, cache *client.Client) {
	defer t.own.suspend()
	follower := &follower{ctx: ctx, table: t}
	for ctx.Err() == nil {
		stream, cancel := context.WithCancel(ctx)
		cache.Follow(stream, t.resource.GroupVersionResource, t.begin(cancel), follower)
		cancel()
	}
}

func (t *table) get(cluster logicalcluster.Name, name types.NamespacedName) (runtime.Object, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if entries := t.clusters[cluster][name]; len(entries) > 0 {
		return entries[0].obj, true
	}
	return nil, false
}

func (t *table) list(cluster logicalcluster.Name) []runtime.Object {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var objects []runtime.Object
	add := func(_ client.Key, e *entry) { objects = append(objects, e.obj) }
	if cluster.IsWildcard() {
		t.each(add)
	} else {
		t.eachOf(cluster, add)
	}
	return objects
}

// each calls a function with all entries. The lock is held.
func (t *table) each(do func(client.Key, *entry)) {
	for cluster := range t.clusters {
		t.eachOf(cluster, do)
	}
}

func (t *table) eachOf(cluster logicalcluster.Name, do func(client.Key, *entry)) {
	for name, entries := range t.clusters[cluster] {
		for _, e := range entries {
			do(client.Key{Shard: e.shard, Cluster: cluster, Namespace: name.Namespace, Name: name.Name}, e)
		}
	}
}

// find returns an entry, or nil. The lock is held.
func (t *table) find(key client.Key) *entry {
	for _, e := range t.clusters[key.Cluster][named(key)] {
		if e.shard == key.Shard {
			return e
		}
	}
	return nil
}

func named(key client.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}

// put keeps an object and tells the watchers. The lock is held.
func (t *table) put(key client.Key, version string, obj runtime.Object) {
	if e := t.find(key); e != nil {
		if e.unseen {
			e.unseen = false
			t.unseen--
		}
		if e.version != version {
			e.obj, e.version = obj, version
			t.changed(key, watch.Modified, obj)
		}
		return
	}
	byName := t.clusters[key.Cluster]
	if byName == nil {
		byName = map[types.NamespacedName][]*entry{}
		t.clusters[key.Cluster] = byName
	}
	entries := append(byName[named(key)], &entry{shard: key.Shard, obj: obj, version: version})
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.shard, b.shard) })
	byName[named(key)] = entries
	t.changed(key, watch.Added, obj)
}

// remove forgets an object and tells the watchers. The lock is held.
func (t *table) remove(key client.Key) {
	e := t.find(key)
	if e == nil {
		return
	}
	if e.unseen {
		t.unseen--
	}
	byName := t.clusters[key.Cluster]
	byName[named(key)] = slices.DeleteFunc(byName[named(key)], func(other *entry) bool { return other == e })
	if len(byName[named(key)]) == 0 {
		delete(byName, named(key))
	}
	if len(byName) == 0 {
		delete(t.clusters, key.Cluster)
	}
	t.changed(key, watch.Deleted, e.obj)
}

func (t *table) changed(key client.Key, change watch.EventType, obj runtime.Object) {
	for w := range t.watchers {
		w.add(watch.Event{Type: change, Object: obj})
	}
	t.mirror.touch(t.resource.GroupResource(), key)
}

// sweep forgets what its shard has no more, and finds out whether everything is known by now.
func (t *table) sweep(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unseen > 0 && t.listed() {
		var gone []client.Key
		confirmed := map[string]bool{}
		t.each(func(key client.Key, e *entry) {
			if !e.unseen {
				return
			}
			sure, asked := confirmed[key.Shard]
			if !asked {
				sure = t.mirror.complete(ctx, key.Shard, t.at)
				confirmed[key.Shard] = sure
			}
			if sure {
				gone = append(gone, key)
			}
		})
		for _, key := range gone {
			t.remove(key)
		}
	}
	if t.unknown != nil && t.listed() {
		if t.unknown = t.mirror.whyIncomplete(ctx, t.at); t.unknown == nil {
			t.mirror.touch(t.resource.GroupResource(), client.Key{})
			for w := range t.watchers {
				w.Stop() // who could not decide looks at everything again
			}
		}
	}
}

// begin notes how the stream is ended, and returns where it begins.
func (t *table) begin(end context.CancelFunc) client.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = end
	if t.relisting {
		return client.Position{}
	}
	return t.at
}

// nudge has a stream that waits for the cache try again at once, where it was.
func (t *table) nudge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.nudged) > nudgeInterval {
		t.nudged = time.Now()
		t.end()
	}
}

// restart has the stream begin anew, with a list.
func (t *table) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.relisting = true
	t.end()
}

// lags tells whether the table could be judged if its stream had come as far as the reports of shards.
func (t *table) lags(ctx context.Context) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.listed() || (t.unseen == 0 && t.unknown == nil) || t.relisting {
		return false
	}
	now := future(t.at)
	if t.unknown != nil && t.mirror.whyIncomplete(ctx, now) == nil {
		return true
	}
	lags := false
	confirmed := map[string]bool{}
	t.each(func(key client.Key, e *entry) {
		if _, asked := confirmed[key.Shard]; e.unseen && !asked {
			confirmed[key.Shard] = t.mirror.complete(ctx, key.Shard, now)
			lags = lags || confirmed[key.Shard]
		}
	})
	return lags
}

func (t *table) whyUnknown() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.unknown
}

// listed tells whether anything was heard of the cache. The lock is held.
func (t *table) listed() bool { return t.at.ResourceVersion != "" }
