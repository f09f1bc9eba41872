package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// hurryInterval is how often it is looked whether streams lag behind what shards say.
const hurryInterval = time.Second

// knownInterval is how often WaitKnown looks.
const knownInterval = 20 * time.Millisecond

// Config is what a mirror is made of.
type Config struct {
	// Shard is the name of this shard, Root that of the one which has the logical cluster root.
	Shard, Root string
	// Resources are those that are followed.
	Resources []client.Resource
	// Shards returns the names of all registered shards, and of each whether it has ever Reported. It is nil on other
	// shards than root, which learn them here.
	Shards func(context.Context) (map[string]bool, error)
	// MaxPerShard is how many objects of one other shard are kept; 0 is any number.
	MaxPerShard int
	// Disk is the copy in the shard's own etcd; nil: none is kept.
	Disk *Disk
}

// Mirror implements storage.Elsewhere. It is empty until Load or Run.
type Mirror struct {
	cfg     Config
	tables  map[schema.GroupResource]*table
	reports reports
	outage  outage
	taken   *taken
	blanks  blanks
	// patience is blankPatience, but in tests.
	patience time.Duration

	mu sync.Mutex
	// dirty are the objects whose copy on the disk is old; nil while this replica does not write them.
	dirty map[diskKey]struct{}
	// listed is closed when every resource was listed once.
	listed   chan struct{}
	unlisted int
}

// New returns an empty mirror.
func New(cfg Config) *Mirror {
	m := &Mirror{cfg: cfg, tables: map[schema.GroupResource]*table{}, taken: newTaken(cfg.MaxPerShard), patience: blankPatience, listed: make(chan struct{}), unlisted: len(cfg.Resources)}
	for _, resource := range cfg.Resources {
		m.tables[resource.GroupResource()] = newTable(m, resource)
	}
	return m
}

// Run follows the cache until the context ends. Afterwards it can be called again: what is known stays, and Own knows
// nothing until then.
func (m *Mirror) Run(ctx context.Context, cache *client.Client) {
	var running sync.WaitGroup
	for _, table := range m.tables {
		running.Go(func() { table.run(ctx, cache) })
	}
	running.Go(func() { m.hurry(ctx) })
	running.Go(func() { warnOfClocks(ctx, cache.ClockAhead) })
	running.Wait()
}

// WaitKnown returns when everything that other shards have is known, the cache turns out to be away, or the context ends.
func (m *Mirror) WaitKnown(ctx context.Context) {
	ticker := time.NewTicker(knownInterval)
	defer ticker.Stop()
	for !m.outage.lasts() && m.unknown() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// unknown tells whether anything may be unknown.
func (m *Mirror) unknown() bool {
	for _, table := range m.tables {
		if table.whyUnknown() != nil {
			return true
		}
	}
	return false
}

// hurry has resources listed anew that could be judged by what shards say by now, if only their streams had come as far
// as that: on a quiet stream it may take a while until the cache tells. Streams that cannot be opened wait up to half a
// minute before they try again, which it shortens as well.
func (m *Mirror) hurry(ctx context.Context) {
	ticker := time.NewTicker(hurryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if reports := m.tables[shardReports]; reports != nil {
			reports.retryNow() // one stream asks for the cache often enough to tell the others when it is back
		}
		for _, table := range m.tables {
			table.sweep(ctx)
			if table.lags(ctx) || table.hasRoom() {
				table.relist()
			}
		}
	}
}

// Get implements storage.Elsewhere. Where several shards have published an object, that of the first by name is returned.
func (m *Mirror) Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, called string) (runtime.Object, bool) {
	if table := m.tables[resource]; table != nil {
		return table.get(name{cluster, namespace, called})
	}
	return nil, false
}

// List implements storage.Elsewhere.
func (m *Mirror) List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object {
	if table := m.tables[resource]; table != nil {
		return table.list(cluster)
	}
	return nil
}

// Watch implements storage.Elsewhere.
func (m *Mirror) Watch(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	table, err := m.table(resource)
	if err != nil {
		return nil, err
	}
	return table.watch(ctx), nil
}

// Known implements storage.Elsewhere. Nothing is known of a resource that is not followed.
func (m *Mirror) Known(resource schema.GroupResource) error {
	table, err := m.table(resource)
	if err != nil {
		return err
	}
	return table.whyUnknown()
}

// WatchOwn streams which objects this shard has in the cache, as metadata without content: what there is as Added, a
// Bookmark, then changes. It ends when the cache may have lost any, or when writing is possible again after an outage:
// then everything must be looked at anew. Before the cache was heard of, it is silent until then, and ends.
func (m *Mirror) WatchOwn(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	table, err := m.table(resource)
	if err != nil {
		return nil, err
	}
	return table.own.watch(ctx), nil
}

// Own returns in which state an object of this shard is in the cache. It reports false while that is not known, or the
// cache is away.
func (m *Mirror) Own(resource schema.GroupResource, key client.Key) (version Version, exists, known bool) {
	table := m.tables[resource]
	if table == nil {
		return Version{}, false, false
	}
	return table.own.get(key)
}

// OwnKeys returns the keys of the objects that this shard has in the cache.
func (m *Mirror) OwnKeys(resource schema.GroupResource) []client.Key {
	if table := m.tables[resource]; table != nil {
		return table.own.keys()
	}
	return nil
}

// OwnStore returns which incarnation of the cache Own speaks of. What is known of two resources belongs together only if
// it is of the same one.
func (m *Mirror) OwnStore(resource schema.GroupResource) (incarnation string, known bool) {
	if table := m.tables[resource]; table != nil {
		return table.own.store()
	}
	return "", false
}

// Wrote tells what became of a write to an object of this shard, before the stream does; nil: it was deleted.
func (m *Mirror) Wrote(resource schema.GroupResource, key client.Key, object *client.Object) error {
	table, err := m.table(resource)
	if err != nil {
		return err
	}
	return table.own.wrote(key, object)
}

func (m *Mirror) table(resource schema.GroupResource) (*table, error) {
	if table := m.tables[resource]; table != nil {
		return table, nil
	}
	return nil, fmt.Errorf("%s is not shared between shards", resource)
}

// sweepAll applies to every table what was learnt about shards.
func (m *Mirror) sweepAll(ctx context.Context) {
	for _, table := range m.tables {
		table.sweep(ctx)
	}
}
