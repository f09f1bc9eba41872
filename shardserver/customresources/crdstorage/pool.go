package crdstorage

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagevalue "k8s.io/apiserver/pkg/storage/value"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Options configure the storage of custom resources.
type Options struct {
	// Storage is the etcd of the shard. Its codec and transformer are not used.
	Storage storagebackend.Config
	// Transformers encrypt at rest; nil for none.
	Transformers storagevalue.ResourceTransformers
	// Meter counts the bytes that are written; nil for none.
	Meter clusterstorage.Meter
	// Guard refuses writes to logical clusters that move; nil for none.
	Guard clusterstorage.Guard
	// WatchCache enables the watch cache. Without it every read goes to etcd.
	WatchCache bool
	// GarbageCollection and DeleteCollectionWorkers are those of the shard's other resources.
	GarbageCollection       bool
	DeleteCollectionWorkers int
}

// Pool has the storages of custom resources: one for all logical clusters per group-resource and key segment.
type Pool struct {
	options Options
	// shared interns the payloads of the objects of all storages.
	shared *clusterstorage.Interner

	mu      sync.Mutex
	entries map[poolKey]*poolEntry
}

type poolKey struct {
	resource schema.GroupResource
	segment  string
}

// poolEntry is one storage and its reference count. It is opened once, without the pool's lock, as that may wait for etcd.
type poolEntry struct {
	refs     int
	openOnce sync.Once
	storage  *Storage
	err      error
}

// NewPool returns an empty pool.
func NewPool(options Options) *Pool {
	return &Pool{options: options, shared: clusterstorage.NewInterner(), entries: map[poolKey]*poolEntry{}}
}

// Acquire returns the storage of a resource under a key segment ("customresources" for those of plain definitions, the
// identity for those of exports), opening it if necessary. Callers must call release; the last release closes the
// storage, its watch cache and every watch on it, and waits for that.
func (p *Pool) Acquire(resource schema.GroupResource, segment string) (storage *Storage, release func(), err error) {
	key := poolKey{resource, segment}
	p.mu.Lock()
	entry := p.entries[key]
	if entry == nil {
		entry = &poolEntry{}
		p.entries[key] = entry
	}
	entry.refs++
	p.mu.Unlock()

	entry.openOnce.Do(func() { entry.storage, entry.err = open(p.options, p.shared, resource, segment) })
	if entry.err != nil {
		p.release(key, entry)
		return nil, nil, fmt.Errorf("opening the storage of %s (%s): %w", resource, segment, entry.err)
	}
	return entry.storage, sync.OnceFunc(func() { p.release(key, entry) }), nil
}

// release drops a reference. A storage that failed to open is removed at once, so that the next Acquire retries.
func (p *Pool) release(key poolKey, entry *poolEntry) {
	p.mu.Lock()
	entry.refs--
	unused := entry.refs == 0
	if (unused || entry.err != nil) && p.entries[key] == entry {
		delete(p.entries, key)
	}
	p.mu.Unlock()
	if unused && entry.storage != nil {
		entry.storage.destroy()
	}
}

// Len returns how many storages are open.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}
