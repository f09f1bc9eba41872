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

	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
)

const (
	// maxSources bounds what one shard follows: each source is an open request to the cache.
	maxSources = 512
	// lookAgain is how often it is tried again to remove what could not be removed.
	lookAgain = 10 * time.Second
)

// KeeperConfig is what a Keeper works with.
type KeeperConfig struct {
	Store *Store
	Cache *client.Client
	// Disk is where the keys of the shard are.
	Disk *replica.SnapshotStore
}

// Keeper makes the copies on the shard those that are wanted. One replica of a shard runs it at a time.
type Keeper struct {
	cfg  KeeperConfig
	news chan struct{}

	mu sync.Mutex
	// wanted is nil until it is known, left how many more there would be without a bound.
	wanted map[copyKey]Source
	left   int
}

// NewKeeper returns a keeper that does nothing before Run and Want.
func NewKeeper(cfg KeeperConfig) *Keeper { return &Keeper{cfg: cfg, news: make(chan struct{}, 1)} }

// Want says which sources there have to be copies of; all others are removed. Beyond a bound, logical clusters that offer
// little come before those that offer much, and what is followed already before what is not.
func (k *Keeper) Want(ctx context.Context, sources []Source) {
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
		klog.FromContext(ctx).Error(nil, "More is offered to this shard by others than it can follow; consumers of the rest are refused", "followed", len(wanted), "refused", left)
	}
	if same {
		return
	}
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// choose returns what is followed of a number of sources, where something is followed already, and how many are left out.
// Places go around: each logical cluster gets its n-th before any gets its next, so that nobody takes those of all others.
func choose(sources []Source, before map[copyKey]Source) (wanted map[copyKey]Source, left int) {
	sources = slices.Clone(sources)
	slices.SortFunc(sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Identity, b.Identity))
	})
	sources = slices.Compact(sources)
	turns, taken := map[copyKey]int{}, map[logicalcluster.Name]int{}
	ordered := make([]Source, 0, len(sources))
	for _, followed := range []bool{true, false} {
		for _, source := range sources {
			key := source.copyKey()
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
	slices.SortStableFunc(ordered, func(a, b Source) int { return cmp.Compare(turns[a.copyKey()], turns[b.copyKey()]) })
	wanted = map[copyKey]Source{}
	for _, source := range ordered {
		if _, is := wanted[source.copyKey()]; is || len(wanted) < maxSources {
			wanted[source.copyKey()] = source
		}
	}
	return wanted, len(turns) - len(wanted)
}

// Wanted returns what Want said last, nil before.
func (k *Keeper) Wanted() []Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wanted == nil {
		return nil
	}
	return slices.AppendSeq([]Source{}, maps.Values(k.wanted))
}

// following is a source that is followed.
type following struct {
	source Source
	end    context.CancelFunc
	ended  chan struct{}
}

func (f *following) stop() {
	f.end()
	<-f.ended
}

// Run follows what is wanted and removes everything else until the context ends. What was copied then stays.
func (k *Keeper) Run(ctx context.Context) {
	running := map[copyKey]*following{}
	defer func() {
		for _, f := range running {
			f.stop()
		}
	}()
	var leftovers map[copyKey]bool // nil until the keys were read
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for ctx.Err() == nil {
		k.mu.Lock()
		wanted := maps.Clone(k.wanted)
		k.mu.Unlock()
		if wanted != nil {
			leftovers = k.adapt(ctx, running, wanted, leftovers)
		}
		select {
		case <-ctx.Done():
		case <-k.news:
		case <-ticker.C:
		}
	}
}

// adapt follows what is wanted and nothing else. It returns what could not be removed.
func (k *Keeper) adapt(ctx context.Context, running map[copyKey]*following, wanted map[copyKey]Source, leftovers map[copyKey]bool) map[copyKey]bool {
	if leftovers == nil {
		var err error
		if leftovers, err = k.stored(ctx); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Reading which copies there are failed, will retry")
			}
			leftovers = nil
		}
	}
	gone := map[copyKey]bool{}
	maps.Copy(gone, leftovers)
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
		case !errors.Is(err, errNews) && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Removing copies failed, will retry", "resource", key.resource, "cluster", key.cluster)
		}
	}
	if leftovers == nil {
		return nil
	}
	return gone
}

// start begins to follow a source.
func (k *Keeper) start(ctx context.Context, source Source) *following {
	ctx, cancel := context.WithCancel(ctx)
	f := &following{source: source, end: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer cancel()
		k.follow(ctx, source)
	}()
	return f
}

func (k *Keeper) follow(ctx context.Context, source Source) {
	var held *held
	done := func() {}
	persist(ctx, "Opening the storage of copies", source, func() (err error) {
		held, done, err = k.cfg.Store.acquire(source.place())
		if err != nil {
			done = func() {}
		}
		return err
	})
	defer func() { done() }()
	if held == nil {
		return
	}
	follower := &follower{ctx: ctx, source: source, held: held}
	k.cfg.Cache.NewReflectorOf(client.CachedResource(source.Resource, source.Identity), source.Shard, source.Cluster, client.Position{}, follower).Run(ctx)
}

// errNews is what remove ends with when something else is wanted by now.
var errNews = errors.New("what is wanted has changed")

// remove removes the copies of a source: first the word that they are complete, so that nobody takes what is left for all.
// It leaves off, with errNews, where something else is wanted by now.
func (k *Keeper) remove(ctx context.Context, key copyKey) error {
	held, done, err := k.cfg.Store.acquire(key.place)
	if err != nil {
		return err
	}
	defer done()
	if err := held.incomplete(ctx, key.cluster); err != nil {
		return err
	}
	stored, err := held.list(ctx, key.cluster)
	if err != nil {
		return err
	}
	for name := range stored {
		if len(k.news) > 0 {
			return errNews
		}
		if err := held.drop(ctx, key.cluster, name); err != nil {
			return fmt.Errorf("removing the copy of %q: %w", name, err)
		}
	}
	return nil
}

// persist does something until it succeeds or the context ends, and tells of the first failure.
func persist(ctx context.Context, what string, source Source, do func() error) {
	pause := 100 * time.Millisecond
	for failed := false; ctx.Err() == nil; failed = true {
		err := do()
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failed {
			klog.FromContext(ctx).Error(err, what+" failed, will retry", "resource", source.Resource, "cluster", source.Cluster, "shard", source.Shard)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		pause = min(2*pause, 10*time.Second)
	}
}
