package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

const (
	// maxSources bounds the sources of one shard: each is an open watch of the cache.
	maxSources = 512
	// resyncInterval is the delay before failed deletions are retried.
	resyncInterval = 10 * time.Second
)

// ReplicatorConfig configures a Replicator.
type ReplicatorConfig struct {
	Store *Store
	Cache *client.Client
	// Disk is where the keys of the shard are.
	Disk *replica.SnapshotStore
}

// Replicator creates and deletes replicas as wanted. One server of a shard runs it at a time.
type Replicator struct {
	cfg  ReplicatorConfig
	news chan struct{}

	mu sync.Mutex
	// wanted is nil until Want; left counts the sources beyond maxSources.
	wanted map[sourceKey]Source
	left   int
}

// NewReplicator returns a replicator that does nothing before Run and Want.
func NewReplicator(cfg ReplicatorConfig) *Replicator {
	return &Replicator{cfg: cfg, news: make(chan struct{}, 1)}
}

// Want sets the sources to replicate; all other replicas are deleted. Beyond maxSources, logical clusters with few
// sources take precedence over those with many, and replicated sources over new ones.
func (k *Replicator) Want(ctx context.Context, sources []Source) {
	k.mu.Lock()
	before := k.wanted
	k.mu.Unlock()
	wanted, left := choose(sources, before)
	k.mu.Lock()
	same := k.wanted != nil && maps.Equal(k.wanted, wanted)
	news := left > 0 && (!same || left != k.left)
	k.wanted, k.left = wanted, left
	k.mu.Unlock()
	if news {
		klog.FromContext(ctx).Error(nil, "More cached resources of other shards are consumed than this shard can replicate; requests for the rest fail", "followed", len(wanted), "refused", left)
	}
	if same {
		return
	}
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// choose returns the sources to replicate, and how many exceed maxSources. It allocates round robin: each logical
// cluster gets its n-th source before any gets its next.
func choose(sources []Source, before map[sourceKey]Source) (wanted map[sourceKey]Source, left int) {
	sources = slices.Clone(sources)
	slices.SortFunc(sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Identity, b.Identity))
	})
	sources = slices.Compact(sources)
	turns, taken := map[sourceKey]int{}, map[logicalcluster.Name]int{}
	ordered := make([]Source, 0, len(sources))
	for _, followed := range []bool{true, false} {
		for _, source := range sources {
			key := source.sourceKey()
			if _, is := before[key]; is != followed {
				continue
			}
			if _, twice := turns[key]; !twice {
				turns[key] = taken[source.Cluster]
				taken[source.Cluster]++
			}
			ordered = append(ordered, source)
		}
	}
	slices.SortStableFunc(ordered, func(a, b Source) int { return cmp.Compare(turns[a.sourceKey()], turns[b.sourceKey()]) })
	wanted = map[sourceKey]Source{}
	for _, source := range ordered {
		if _, is := wanted[source.sourceKey()]; is || len(wanted) < maxSources {
			wanted[source.sourceKey()] = source
		}
	}
	return wanted, len(turns) - len(wanted)
}

// Wanted returns the sources of the last Want, nil before.
func (k *Replicator) Wanted() []Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wanted == nil {
		return nil
	}
	return slices.AppendSeq([]Source{}, maps.Values(k.wanted))
}

// activeSource is a source with a running reflector.
type activeSource struct {
	source Source
	end    context.CancelFunc
	ended  chan struct{}
}

func (f *activeSource) stop() {
	f.end()
	<-f.ended
}

// Run replicates what is wanted and deletes everything else until the context ends. Replicas then stay.
func (k *Replicator) Run(ctx context.Context) {
	running := map[sourceKey]*activeSource{}
	defer func() {
		for _, f := range running {
			f.stop()
		}
	}()
	var orphans map[sourceKey]bool // nil until the keys were read
	ticker := time.NewTicker(resyncInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		k.mu.Lock()
		wanted := maps.Clone(k.wanted)
		k.mu.Unlock()
		if wanted != nil {
			orphans = k.adapt(ctx, running, wanted, orphans)
		}
		select {
		case <-ctx.Done():
		case <-k.news:
		case <-ticker.C:
		}
	}
}

// adapt starts and stops reflectors. It returns the replicas that could not be deleted.
func (k *Replicator) adapt(ctx context.Context, running map[sourceKey]*activeSource, wanted map[sourceKey]Source, orphans map[sourceKey]bool) map[sourceKey]bool {
	if orphans == nil {
		var err error
		if orphans, err = k.stored(ctx); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Listing replicas failed, will retry")
			}
			orphans = nil
		}
	}
	gone := map[sourceKey]bool{}
	maps.Copy(gone, orphans)
	for key, f := range running {
		if source, ok := wanted[key]; !ok || source != f.source {
			f.stop()
			delete(running, key)
			gone[key] = true
		}
	}
	for key, source := range wanted {
		if running[key] == nil {
			running[key] = k.start(ctx, source)
		}
		delete(gone, key)
	}
	for key := range gone { // at last: it may take long, and nobody waits for it
		switch err := k.remove(ctx, key); {
		case err == nil:
			delete(gone, key)
		case !errors.Is(err, errSourcesChanged) && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Deleting replicas failed, will retry", "resource", key.resource, "cluster", key.cluster)
		}
	}
	if orphans == nil {
		return nil
	}
	return gone
}

// start starts the reflector of a source.
func (k *Replicator) start(ctx context.Context, source Source) *activeSource {
	ctx, cancel := context.WithCancel(ctx)
	f := &activeSource{source: source, end: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer cancel()
		k.follow(ctx, source)
	}()
	return f
}

func (k *Replicator) follow(ctx context.Context, source Source) {
	var openStorage *openStorage
	done := func() {}
	persist(ctx, "Opening the storage of replicas", source, func() (err error) {
		openStorage, done, err = k.cfg.Store.acquire(source.storageKey())
		if err != nil {
			done = func() {}
		}
		return err
	})
	defer func() { done() }()
	if openStorage == nil {
		return
	}
	eventHandler := &eventHandler{ctx: ctx, source: source, openStorage: openStorage}
	k.cfg.Cache.NewReflectorOf(client.CachedResource(source.Resource, source.Identity), source.Shard, source.Cluster, client.Position{}, eventHandler).Run(ctx)
}

// errSourcesChanged is returned by remove when the wanted sources have changed.
var errSourcesChanged = errors.New("the wanted sources have changed")

// remove deletes the replicas of a source, its completeness marker first, so that the rest is not served as complete.
// It stops with errSourcesChanged when the wanted sources have changed.
func (k *Replicator) remove(ctx context.Context, key sourceKey) error {
	openStorage, done, err := k.cfg.Store.acquire(key.storageKey)
	if err != nil {
		return err
	}
	defer done()
	if err := openStorage.incomplete(ctx, key.cluster); err != nil {
		return err
	}
	stored, err := openStorage.list(ctx, key.cluster)
	if err != nil {
		return err
	}
	for name := range stored {
		if len(k.news) > 0 {
			return errSourcesChanged
		}
		if err := openStorage.drop(ctx, key.cluster, name); err != nil {
			return fmt.Errorf("removing the copy of %q: %w", name, err)
		}
	}
	return nil
}

// persist retries a function until it succeeds or the context ends, and logs the first failure.
func persist(ctx context.Context, what string, source Source, do func() error) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8, Cap: 10 * time.Second}
	for failed := false; ctx.Err() == nil; failed = true {
		err := do()
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failed {
			klog.FromContext(ctx).Error(err, what+" failed, will retry", "resource", source.Resource, "cluster", source.Cluster, "shard", source.Shard)
		}
		background.Sleep(ctx, backoff.Step())
	}
}
