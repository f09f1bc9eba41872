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
	// SnapshotStore has the etcd client and the key prefix of the shard.
	SnapshotStore *replica.SnapshotStore
}

// Replicator creates and deletes the replicas of its sources. One server of a shard runs it at a time.
type Replicator struct {
	cfg     ReplicatorConfig
	changed chan struct{}
	// checkTerm is set by Run, and ends it when another server of the shard has started to run.
	checkTerm func(context.Context) error

	mu sync.Mutex
	// desired is nil until SetSources; dropped counts the sources beyond maxSources.
	desired map[sourceKey]Source
	dropped int
}

// NewReplicator returns a replicator that does nothing before Run and SetSources.
func NewReplicator(cfg ReplicatorConfig) *Replicator {
	return &Replicator{cfg: cfg, changed: make(chan struct{}, 1)}
}

// SetSources sets the sources to replicate; all other replicas are deleted. Beyond maxSources, logical clusters with
// few sources take precedence over those with many, and replicated sources over new ones.
func (r *Replicator) SetSources(ctx context.Context, sources []Source) {
	r.mu.Lock()
	previous := r.desired
	r.mu.Unlock()
	desired, dropped := selectSources(sources, previous)
	r.mu.Lock()
	unchanged := r.desired != nil && maps.Equal(r.desired, desired)
	logDropped := dropped > 0 && (!unchanged || dropped != r.dropped)
	r.desired, r.dropped = desired, dropped
	r.mu.Unlock()
	if logDropped {
		klog.FromContext(ctx).Error(nil, "More cached resources of other shards are consumed than this shard can replicate; requests for the rest fail", "followed", len(desired), "refused", dropped)
	}
	if unchanged {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// selectSources returns the sources to replicate, and how many exceed maxSources. It allocates round robin: each
// logical cluster gets its n-th source before any gets its next.
func selectSources(sources []Source, previous map[sourceKey]Source) (selected map[sourceKey]Source, dropped int) {
	sources = slices.Clone(sources)
	slices.SortFunc(sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Identity, b.Identity))
	})
	sources = slices.Compact(sources)
	rounds, counts := map[sourceKey]int{}, map[logicalcluster.Name]int{}
	ordered := make([]Source, 0, len(sources))
	for _, replicated := range []bool{true, false} {
		for _, source := range sources {
			key := source.sourceKey()
			if _, exists := previous[key]; exists != replicated {
				continue
			}
			if _, found := rounds[key]; !found {
				rounds[key] = counts[source.Cluster]
				counts[source.Cluster]++
			}
			ordered = append(ordered, source)
		}
	}
	slices.SortStableFunc(ordered, func(a, b Source) int { return cmp.Compare(rounds[a.sourceKey()], rounds[b.sourceKey()]) })
	selected = map[sourceKey]Source{}
	for _, source := range ordered {
		if _, exists := selected[source.sourceKey()]; exists || len(selected) < maxSources {
			selected[source.sourceKey()] = source
		}
	}
	return selected, len(rounds) - len(selected)
}

// Sources returns the sources of the last SetSources, or nil before.
func (r *Replicator) Sources() []Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.desired == nil {
		return nil
	}
	return slices.AppendSeq([]Source{}, maps.Values(r.desired))
}

// activeSource is a source with a running reflector.
type activeSource struct {
	source Source
	cancel context.CancelFunc
	done   chan struct{}
}

func (a *activeSource) stop() {
	a.cancel()
	<-a.done
}

// Run replicates the sources and deletes all other replicas until the context ends, or another server of the shard runs
// it. Replicas then stay.
func (r *Replicator) Run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if !r.acquireTerm(ctx, stop) {
		return
	}
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
		r.mu.Lock()
		desired := maps.Clone(r.desired)
		r.mu.Unlock()
		if desired != nil {
			orphans = r.syncReflectors(ctx, running, desired, orphans)
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-ticker.C:
		}
	}
}

// acquireTerm acquires the right to write replicas. It returns false if the context ended before. stop is called at the
// end of the term.
func (r *Replicator) acquireTerm(ctx context.Context, stop func()) bool {
	var term *replica.Term
	retry(ctx, "Acquiring the replicas of cached resources", Source{}, func() (err error) {
		term, err = r.cfg.SnapshotStore.AcquireTerm(ctx, segment)
		return err
	})
	r.checkTerm = func(ctx context.Context) error {
		err := term.Check(ctx)
		if errors.Is(err, replica.ErrTermEnded) { // this server has lost the lease of controllers
			stop()
		}
		return err
	}
	return term != nil
}

// syncReflectors starts and stops reflectors. It returns the replicas that could not be deleted.
func (r *Replicator) syncReflectors(ctx context.Context, running map[sourceKey]*activeSource, desired map[sourceKey]Source, orphans map[sourceKey]bool) map[sourceKey]bool {
	if orphans == nil {
		var err error
		if orphans, err = r.listStored(ctx); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to list replicas, will retry")
			}
			orphans = nil
		}
	}
	obsolete := map[sourceKey]bool{}
	maps.Copy(obsolete, orphans)
	for key, f := range running {
		if source, ok := desired[key]; !ok || source != f.source {
			f.stop()
			delete(running, key)
			obsolete[key] = true
		}
	}
	for key, source := range desired {
		if running[key] == nil {
			running[key] = r.start(ctx, source)
		}
		delete(obsolete, key)
	}
	for key := range obsolete { // last, because it may take long and is not urgent
		switch err := r.deleteReplicas(ctx, key); {
		case err == nil:
			delete(obsolete, key)
		case !errors.Is(err, errSourcesChanged) && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Failed to delete replicas, will retry", "resource", key.resource, "cluster", key.cluster)
		}
	}
	if orphans == nil {
		return nil
	}
	return obsolete
}

// start starts the reflector of a source.
func (r *Replicator) start(ctx context.Context, source Source) *activeSource {
	ctx, cancel := context.WithCancel(ctx)
	f := &activeSource{source: source, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer cancel()
		r.runReflector(ctx, source)
	}()
	return f
}

func (r *Replicator) runReflector(ctx context.Context, source Source) {
	var openStorage *openStorage
	done := func() {}
	retry(ctx, "Opening the storage of replicas", source, func() (err error) {
		openStorage, done, err = r.cfg.Store.acquire(source.storageKey())
		if err != nil {
			done = func() {}
		}
		return err
	})
	defer func() { done() }()
	if openStorage == nil {
		return
	}
	eventHandler := &eventHandler{ctx: ctx, source: source, storage: &writer{openStorage, r.checkTerm}}
	r.cfg.Cache.NewScopedReflector(client.CachedResource(source.Resource, source.Identity), source.Shard, source.Cluster, client.Position{}, eventHandler).Run(ctx)
}

// errSourcesChanged is returned by deleteReplicas when the sources have changed.
var errSourcesChanged = errors.New("the sources have changed")

// deleteReplicas deletes the replicas of a source, its completeness marker first, so that the rest is not served as
// complete. It stops with errSourcesChanged when the sources have changed.
func (r *Replicator) deleteReplicas(ctx context.Context, key sourceKey) error {
	openStorage, done, err := r.cfg.Store.acquire(key.storageKey)
	if err != nil {
		return err
	}
	defer done()
	storage := &writer{openStorage, r.checkTerm}
	if err := storage.deleteCompleteMarker(ctx, key.cluster); err != nil {
		return err
	}
	stored, err := openStorage.listOriginals(ctx, key.cluster)
	if err != nil {
		return err
	}
	for name := range stored {
		if len(r.changed) > 0 {
			return errSourcesChanged
		}
		if err := storage.delete(ctx, key.cluster, name); err != nil {
			return fmt.Errorf("deleting the replica of %q: %w", name, err)
		}
	}
	return nil
}

// retry retries a function until it succeeds or the context ends, and logs the first failure.
func retry(ctx context.Context, operation string, source Source, fn func() error) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8, Cap: 10 * time.Second}
	for failed := false; ctx.Err() == nil; failed = true {
		err := fn()
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failed {
			klog.FromContext(ctx).Error(err, operation+" failed, will retry", "resource", source.Resource, "cluster", source.Cluster, "shard", source.Shard)
		}
		background.Sleep(ctx, backoff.Step())
	}
}
