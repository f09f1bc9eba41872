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
func (c *Syncer) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer metrics.ParentConnected.Set(0)
	defer metrics.ParentPending.Set(0)
	for _, resource := range client.Resources() {
		gvr := resource.GroupVersionResource
		running.Go(func() {
			c.config.Local.NewReflector(gvr, client.Position{}, eventHandler{cacheState: c.local, gvr: gvr, log: c.log}).Run(ctx)
		})
		running.Go(func() {
			c.config.Parent.NewReflector(gvr, client.Position{}, eventHandler{cacheState: c.parent, gvr: gvr, log: c.log}).Run(ctx)
		})
	}
	for range workers {
		running.Go(func() {
			for c.processNextItem(ctx) {
			}
		})
	}
	wait.UntilWithContext(ctx, func(context.Context) { c.resync() }, resyncInterval)
	c.queue.ShutDown()
}

// enqueue queues items.
func (c *Syncer) enqueue(items ...objectRef) {
	c.lock.Lock()
	for _, ref := range items {
		c.event++
		if c.unsynced[ref.key.Shard] == nil {
			c.unsynced[ref.key.Shard] = map[objectRef]uint64{}
		}
		c.unsynced[ref.key.Shard][ref] = c.event
	}
	c.lock.Unlock()
	for _, ref := range items {
		c.queue.Add(ref)
	}
}

// resync queues every item that differs from its desired state: items that depend on others get no event. Failed items
// keep their backoff unless the caches became available again.
func (c *Syncer) resync() {
	connected := c.parent.hasSynced(c.watches)
	c.setAvailable(connected && c.local.hasSynced(c.watches))
	all := map[objectRef]bool{}
	c.local.forEach(func(ref objectRef) { all[ref] = true })
	c.parent.forEach(func(ref objectRef) { all[ref] = true })
	var items []objectRef
	for ref := range all {
		if desired := decide(c.observe(ref)); desired != noAction && desired != conflict && c.queue.NumRequeues(ref) == 0 {
			items = append(items, ref)
		}
	}
	c.enqueue(items...)
	state := 0.0
	if connected {
		state = 1
	}
	metrics.ParentConnected.Set(state)
	metrics.ParentPending.Set(float64(c.pending()))
}

func (c *Syncer) pending() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	count := 0
	for _, items := range c.unsynced {
		count += len(items)
	}
	return count
}

func (c *Syncer) processNextItem(ctx context.Context) bool {
	ref, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(ref)
	c.lock.Lock()
	event := c.unsynced[ref.key.Shard][ref]
	c.lock.Unlock()
	err := c.sync(ctx, ref)
	switch {
	case ctx.Err() != nil:
		return true
	case err == errWait:
		c.queue.AddAfter(ref, minRetry)
		return true
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		c.queue.AddRateLimited(ref) // an event follows
		return true
	case err != nil:
		c.recordFailure(ref, err)
		c.queue.AddRateLimited(ref)
		return true
	}
	c.queue.Forget(ref)
	c.recordSuccess(ref)
	c.markSynced(ref, event)
	return true
}

// setAvailable records whether both caches are available. When they become so, it ends the backoff of failed items.
func (c *Syncer) setAvailable(now bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if now && !c.available {
		for ref := range c.failing {
			c.queue.Forget(ref)
		}
	}
	c.available = now
}

// recordFailure and recordSuccess track failing items. The first failure and the last recovery are logged: a parent
// that rejects a shard over its quota may reject thousands of objects.
func (c *Syncer) recordFailure(ref objectRef, reason error) {
	c.lock.Lock()
	first := len(c.failing) == 0
	c.failing[ref] = struct{}{}
	c.lock.Unlock()
	if first {
		c.log.Error(reason, "Synchronizing an object with the parent cache failed, will retry; for others see atoll_cache_parent_pending", "resource", ref.gvr.GroupResource(), "key", ref.key)
		return
	}
	c.log.V(2).Info("Synchronizing an object with the parent cache failed, will retry", "resource", ref.gvr.GroupResource(), "key", ref.key, "reason", reason)
}

// recordSuccess is described at recordFailure.
func (c *Syncer) recordSuccess(ref objectRef) {
	c.lock.Lock()
	_, wasFailing := c.failing[ref]
	delete(c.failing, ref)
	last := wasFailing && len(c.failing) == 0
	c.lock.Unlock()
	if last {
		c.log.Info("All failed objects are synchronized with the parent cache")
	}
}

// markSynced removes an item from unsynced unless it had another event.
func (c *Syncer) markSynced(ref objectRef, event uint64) {
	c.lock.Lock()
	defer c.lock.Unlock()
	items := c.unsynced[ref.key.Shard]
	if items[ref] != event {
		return
	}
	delete(items, ref)
	if len(items) == 0 {
		delete(c.unsynced, ref.key.Shard)
	}
}

// observe returns the input of decide for an object.
func (c *Syncer) observe(ref objectRef) decisionInput {
	f := decisionInput{cacheName: c.config.Name}
	f.local, f.deletedLocally = c.local.get(ref)
	f.parent, f.deletedInParent = c.parent.get(ref)
	localReport, localHeartbeat := c.local.report(ref.key.Shard)
	parentReport, parentHeartbeat := c.parent.report(ref.key.Shard)
	switch {
	case !parentReport.exists:
		f.unowned = true
	case parentReport.via == f.cacheName:
		f.owned = true
	case localReport.exists && !localReport.down:
		// The shard has reported in both caches. It has moved to this one if it still reports in this one only.
		f.moving = c.now().Sub(localHeartbeat) < c.config.ShardTimeout
		f.owned = f.moving && c.now().Sub(parentHeartbeat) >= c.config.ShardTimeout
	}
	return f
}

// mustWait returns whether the report of a shard must wait for its objects, and whether it has waited too long.
func (c *Syncer) mustWait(shard string) (mustWait, tooLong bool) {
	ready := c.local.hasSynced(c.watches) && c.parent.hasSynced(c.watches)
	c.lock.Lock()
	defer c.lock.Unlock()
	report := objectRef{client.Reports, reportKey(shard)}
	for ref := range c.unsynced[shard] {
		ready = ready && ref == report
	}
	if ready {
		delete(c.waitingReports, shard)
		return false, false
	}
	if _, ok := c.waitingReports[shard]; !ok {
		c.waitingReports[shard] = c.now()
	}
	return true, c.now().Sub(c.waitingReports[shard]) >= reportTimeout
}
