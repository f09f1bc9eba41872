package hierarchy

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/metrics"
)

const (
	workers = 4
	// resyncInterval is the time between two resyncs. Events only shorten the delay.
	resyncInterval = 5 * time.Second
	minRetry       = 200 * time.Millisecond
	maxRetry       = 30 * time.Second
	// reportTimeout is how long the report of a shard waits for its objects, before it is written as incomplete.
	reportTimeout = 15 * time.Second
)

// Config configures a Syncer. All fields are required.
type Config struct {
	// Name is the name of this cache.
	Name string
	// Local is a client of this cache, Parent one of its parent.
	Local, Parent *client.Client
	// ShardTimeout is how long a shard must not have reported in another cache before this one owns it, if it reports
	// here.
	ShardTimeout time.Duration
}

// Syncer copies objects between a cache and its parent.
type Syncer struct {
	config        Config
	local, parent *cacheState
	queue         workqueue.TypedRateLimitingInterface[objectRef]
	now           func() time.Time
	log           klog.Logger
	// watches is the number of watched resources.
	watches int

	lock sync.Mutex
	// unsynced are the items to be synced, by shard, each with the number of its last event.
	unsynced map[string]map[objectRef]uint64
	event    uint64
	// waitingReports is since when the report of a shard waits for its objects.
	waitingReports map[string]time.Time
	// failing are the items whose last attempt failed.
	failing map[objectRef]struct{}
	// available is whether both caches were available at the last resync.
	available bool
}

// New returns a Syncer that does nothing before Run.
func New(config Config) *Syncer {
	c := &Syncer{
		config:         config,
		queue:          workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[objectRef](minRetry, maxRetry)),
		now:            time.Now,
		watches:        len(client.Resources()),
		log:            klog.Background().WithValues("parent", config.Parent.Address()),
		unsynced:       map[string]map[objectRef]uint64{},
		waitingReports: map[string]time.Time{}, failing: map[objectRef]struct{}{},
	}
	c.local, c.parent = newCacheState("here", c.now, c.enqueue), newCacheState("parent", c.now, c.enqueue)
	return c
}

// Run synchronizes until the context ends.
func (s *Syncer) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer metrics.ParentConnected.Set(0)
	defer metrics.ParentPending.Set(0)
	for _, resource := range client.Resources() {
		gvr := resource.GroupVersionResource
		running.Go(func() {
			s.config.Local.NewReflector(gvr, client.Position{}, eventHandler{cacheState: s.local, gvr: gvr, log: s.log}).Run(ctx)
		})
		running.Go(func() {
			s.config.Parent.NewReflector(gvr, client.Position{}, eventHandler{cacheState: s.parent, gvr: gvr, log: s.log}).Run(ctx)
		})
	}
	for range workers {
		running.Go(func() {
			for s.processNextItem(ctx) {
			}
		})
	}
	wait.UntilWithContext(ctx, func(context.Context) { s.resync() }, resyncInterval)
	s.queue.ShutDown()
}

// enqueue queues items.
func (s *Syncer) enqueue(items ...objectRef) {
	s.lock.Lock()
	for _, ref := range items {
		s.event++
		if s.unsynced[ref.key.Shard] == nil {
			s.unsynced[ref.key.Shard] = map[objectRef]uint64{}
		}
		s.unsynced[ref.key.Shard][ref] = s.event
	}
	s.lock.Unlock()
	for _, ref := range items {
		s.queue.Add(ref)
	}
}

// resync queues every item that differs from its desired state: items that depend on others get no event. Failed items
// keep their backoff unless the caches became available again.
func (s *Syncer) resync() {
	connected := s.parent.hasSynced(s.watches)
	s.setAvailable(connected && s.local.hasSynced(s.watches))
	all := map[objectRef]bool{}
	s.local.forEach(func(ref objectRef) { all[ref] = true })
	s.parent.forEach(func(ref objectRef) { all[ref] = true })
	var items []objectRef
	for ref := range all {
		if desired := decide(s.observe(ref)); desired != noAction && desired != conflict && s.queue.NumRequeues(ref) == 0 {
			items = append(items, ref)
		}
	}
	s.enqueue(items...)
	state := 0.0
	if connected {
		state = 1
	}
	metrics.ParentConnected.Set(state)
	metrics.ParentPending.Set(float64(s.pending()))
}

func (s *Syncer) pending() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	count := 0
	for _, items := range s.unsynced {
		count += len(items)
	}
	return count
}

func (s *Syncer) processNextItem(ctx context.Context) bool {
	ref, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(ref)
	s.lock.Lock()
	event := s.unsynced[ref.key.Shard][ref]
	s.lock.Unlock()
	err := s.sync(ctx, ref)
	switch {
	case ctx.Err() != nil:
		return true
	case err == errWait:
		s.queue.AddAfter(ref, minRetry)
		return true
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		s.queue.AddRateLimited(ref) // an event follows
		return true
	case err != nil:
		s.recordFailure(ref, err)
		s.queue.AddRateLimited(ref)
		return true
	}
	s.queue.Forget(ref)
	s.recordSuccess(ref)
	s.markSynced(ref, event)
	return true
}

// setAvailable records whether both caches are available. When they become so, it ends the backoff of failed items.
func (s *Syncer) setAvailable(now bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if now && !s.available {
		for ref := range s.failing {
			s.queue.Forget(ref)
		}
	}
	s.available = now
}

// recordFailure and recordSuccess track failing items. The first failure and the last recovery are logged: a parent
// that rejects a shard over its quota may reject thousands of objects.
func (s *Syncer) recordFailure(ref objectRef, reason error) {
	s.lock.Lock()
	first := len(s.failing) == 0
	s.failing[ref] = struct{}{}
	s.lock.Unlock()
	if first {
		s.log.Error(reason, "Failed to synchronize an object with the parent cache, will retry; for others see atoll_cache_parent_pending", "resource", ref.gvr.GroupResource(), "key", ref.key)
		return
	}
	s.log.V(2).Info("Failed to synchronize an object with the parent cache, will retry", "resource", ref.gvr.GroupResource(), "key", ref.key, "err", reason)
}

// recordSuccess is described at recordFailure.
func (s *Syncer) recordSuccess(ref objectRef) {
	s.lock.Lock()
	_, wasFailing := s.failing[ref]
	delete(s.failing, ref)
	last := wasFailing && len(s.failing) == 0
	s.lock.Unlock()
	if last {
		s.log.Info("All objects are synchronized with the parent cache again")
	}
}

// markSynced removes an item from unsynced unless it had another event.
func (s *Syncer) markSynced(ref objectRef, event uint64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	items := s.unsynced[ref.key.Shard]
	if items[ref] != event {
		return
	}
	delete(items, ref)
	if len(items) == 0 {
		delete(s.unsynced, ref.key.Shard)
	}
}

// observe returns the input of decide for an object.
func (s *Syncer) observe(ref objectRef) decisionInput {
	f := decisionInput{cacheName: s.config.Name}
	f.local, f.deletedLocally = s.local.get(ref)
	f.parent, f.deletedInParent = s.parent.get(ref)
	localReport, localHeartbeat := s.local.report(ref.key.Shard)
	parentReport, parentHeartbeat := s.parent.report(ref.key.Shard)
	switch {
	case !parentReport.exists:
		f.unowned = true
	case parentReport.via == f.cacheName:
		f.owned = true
	case localReport.exists && !localReport.down:
		// The shard has reported in both caches. It has moved to this one if it still reports in this one only.
		f.moving = s.now().Sub(localHeartbeat) < s.config.ShardTimeout
		f.owned = f.moving && s.now().Sub(parentHeartbeat) >= s.config.ShardTimeout
	}
	return f
}

// mustWait returns whether the report of a shard must wait for its objects, and whether it has waited too long.
func (s *Syncer) mustWait(shard string) (mustWait, tooLong bool) {
	ready := s.local.hasSynced(s.watches) && s.parent.hasSynced(s.watches)
	s.lock.Lock()
	defer s.lock.Unlock()
	report := objectRef{client.Reports, reportKey(shard)}
	for ref := range s.unsynced[shard] {
		ready = ready && ref == report
	}
	if ready {
		delete(s.waitingReports, shard)
		return false, false
	}
	if _, ok := s.waitingReports[shard]; !ok {
		s.waitingReports[shard] = s.now()
	}
	return true, s.now().Sub(s.waitingReports[shard]) >= reportTimeout
}
