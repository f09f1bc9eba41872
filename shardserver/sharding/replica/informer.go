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

// catchUpInterval is how often stores are compared with the latest reports of shards.
const catchUpInterval = time.Second

// syncPollInterval is how often WaitForSync polls.
const syncPollInterval = 20 * time.Millisecond

// Config configures an Informer.
type Config struct {
	// Shard is the name of this shard, Root that of the one which has the logical cluster root.
	Shard, Root string
	// Resources are the resources to list and watch.
	Resources []client.Resource
	// Shards returns the names of all registered shards, and whether each has ever Reported. It is nil except on the
	// root shard: other shards read them from the cache.
	Shards func(context.Context) (map[string]bool, error)
	// MaxPerShard limits the objects kept of one other shard; 0: no limit.
	MaxPerShard int
	// SnapshotStore persists a snapshot in the shard's own etcd; nil: none is kept.
	SnapshotStore *SnapshotStore
}

// Informer implements storage.RemoteStore. It is empty until Load or Run.
type Informer struct {
	cfg           Config
	stores        map[schema.GroupResource]*store
	shardTracker  shardTracker
	outage        outage
	quota         *quota
	neverReported neverReportedTracker
	// neverReportedTimeout is neverReportedTimeout except in tests.
	neverReportedTimeout time.Duration

	mu sync.Mutex
	// dirty are the objects whose snapshot is outdated; nil unless this replica writes the snapshot.
	dirty map[snapshotKey]struct{}
	// allListed is closed when every resource has been listed once; pendingLists counts those that have not.
	allListed    chan struct{}
	pendingLists int
}

// New returns an empty informer.
func New(cfg Config) *Informer {
	inf := &Informer{cfg: cfg, stores: map[schema.GroupResource]*store{}, quota: newQuota(cfg.MaxPerShard), neverReportedTimeout: neverReportedTimeout, allListed: make(chan struct{}), pendingLists: len(cfg.Resources)}
	for _, resource := range cfg.Resources {
		inf.stores[resource.GroupResource()] = newStore(inf, resource)
	}
	return inf
}

// Run lists and watches the cache until the context ends. It may be called again: the objects stay; the published state
// of this shard's objects is unknown in between.
func (inf *Informer) Run(ctx context.Context, cache *client.Client) {
	var running sync.WaitGroup
	for _, store := range inf.stores {
		running.Go(func() { store.run(ctx, cache) })
	}
	running.Go(func() { inf.catchUp(ctx) })
	running.Go(func() { reportClockSkew(ctx, cache.ClockSkew) })
	running.Wait()
}

// WaitForSync returns when all stores are synced, the cache is unavailable, or the context ends.
func (inf *Informer) WaitForSync(ctx context.Context) {
	ticker := time.NewTicker(syncPollInterval)
	defer ticker.Stop()
	for !inf.outage.ongoing() && inf.notSynced() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// notSynced returns whether any store is not synced.
func (inf *Informer) notSynced() bool {
	for _, store := range inf.stores {
		if store.syncError() != nil {
			return true
		}
	}
	return false
}

// catchUp relists resources that could be pruned by the latest reports if their watches had reached them: bookmarks of
// an idle watch come rarely. It also ends the backoff of the reflector of reports, which retries the others when it
// connects.
func (inf *Informer) catchUp(ctx context.Context) {
	ticker := time.NewTicker(catchUpInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if reports := inf.stores[shardReports]; reports != nil {
			reports.retryNow() // its OnConnect retries the other reflectors
		}
		for _, store := range inf.stores {
			store.prune(ctx)
			if store.needed(ctx) || store.quotaFreed() {
				store.relist()
			}
		}
	}
}

// Get implements storage.RemoteStore. Of objects that several shards publish under one name, it returns that of the
// first shard by name.
func (inf *Informer) Get(resource schema.GroupResource, cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool) {
	if store := inf.stores[resource]; store != nil {
		return store.get(objectKey{cluster, namespace, name})
	}
	return nil, false
}

// List implements storage.RemoteStore.
func (inf *Informer) List(resource schema.GroupResource, cluster logicalcluster.Name) []runtime.Object {
	if store := inf.stores[resource]; store != nil {
		return store.list(cluster)
	}
	return nil
}

// Watch implements storage.RemoteStore.
func (inf *Informer) Watch(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	store, err := inf.store(resource)
	if err != nil {
		return nil, err
	}
	return store.watch(ctx), nil
}

// CheckSynced implements storage.RemoteStore. A resource that is not watched is never synced.
func (inf *Informer) CheckSynced(resource schema.GroupResource) error {
	store, err := inf.store(resource)
	if err != nil {
		return err
	}
	return store.syncError()
}

// WatchPublished watches which objects of this shard are in the cache, as metadata without content: existing objects as
// Added, a Bookmark, then changes. It ends when the cache may have lost objects, or is available again after an outage:
// callers must then check every object again. Before the first list it sends nothing, and ends with the list.
func (inf *Informer) WatchPublished(ctx context.Context, resource schema.GroupResource) (watch.Interface, error) {
	store, err := inf.store(resource)
	if err != nil {
		return nil, err
	}
	return store.published.watch(ctx), nil
}

// Published returns the state of an object of this shard in the cache. known is false before the first list and while
// the cache is unavailable.
func (inf *Informer) Published(resource schema.GroupResource, key client.Key) (version Version, exists, known bool) {
	store := inf.stores[resource]
	if store == nil {
		return Version{}, false, false
	}
	return store.published.get(key)
}

// PublishedKeys returns the keys of the objects of this shard in the cache.
func (inf *Informer) PublishedKeys(resource schema.GroupResource) []client.Key {
	if store := inf.stores[resource]; store != nil {
		return store.published.keys()
	}
	return nil
}

// PublishedIncarnation returns the incarnation of the cache that Published refers to. The published states of two
// resources are consistent only within one incarnation.
func (inf *Informer) PublishedIncarnation(resource schema.GroupResource) (incarnation string, known bool) {
	if store := inf.stores[resource]; store != nil {
		return store.published.currentIncarnation()
	}
	return "", false
}

// RecordWrite records the result of a write to an object of this shard before its watch event arrives; nil: it was
// deleted.
func (inf *Informer) RecordWrite(resource schema.GroupResource, key client.Key, object *client.Object) error {
	store, err := inf.store(resource)
	if err != nil {
		return err
	}
	return store.published.recordWrite(key, object)
}

func (inf *Informer) store(resource schema.GroupResource) (*store, error) {
	if store := inf.stores[resource]; store != nil {
		return store, nil
	}
	return nil, fmt.Errorf("%s is not shared between shards", resource)
}

// pruneAll prunes every store after the set of shards or their reports changed.
func (inf *Informer) pruneAll(ctx context.Context) {
	for _, store := range inf.stores {
		store.prune(ctx)
	}
}
