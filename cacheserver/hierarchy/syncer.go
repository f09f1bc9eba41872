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
	queue         workqueue.TypedRateLimitingInterface[item]
	now           func() time.Time
	log           klog.Logger
	// streams is the number of watched resources.
	streams int

	lock sync.Mutex
	// unsettled are the items to be synced, by shard, each with the number of its last event.
	unsettled map[string]map[item]uint64
	event     uint64
	// waitingReports is since when the report of a shard waits for its objects.
	waitingReports map[string]time.Time
	// failing are the items whose last attempt failed.
	failing map[item]struct{}
	// available is whether both caches were available at the last resync.
	available bool
}

// New returns a Syncer that does nothing before Run.
func New(config Config) *Syncer {
	c := &Syncer{
		config:         config,
		queue:          workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](minRetry, maxRetry)),
		now:            time.Now,
		streams:        len(client.Resources()),
		log:            klog.Background().WithValues("parent", config.Parent.Address()),
		unsettled:      map[string]map[item]uint64{},
		waitingReports: map[string]time.Time{}, failing: map[item]struct{}{},
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
			for c.next(ctx) {
			}
		})
	}
	wait.UntilWithContext(ctx, func(context.Context) { c.resync() }, resyncInterval)
	c.queue.ShutDown()
}

// enqueue queues items.
func (c *Syncer) enqueue(items ...item) {
	c.lock.Lock()
	for _, of := range items {
		c.event++
		if c.unsettled[of.key.Shard] == nil {
			c.unsettled[of.key.Shard] = map[item]uint64{}
		}
		c.unsettled[of.key.Shard][of] = c.event
	}
	c.lock.Unlock()
	for _, of := range items {
		c.queue.Add(of)
	}
}

// resync queues every item that differs from its desired state: items that depend on others get no event. Failed items
// keep their backoff unless the caches became available again.
func (c *Syncer) resync() {
	connected := c.parent.synced(c.streams)
	c.setAvailable(connected && c.local.synced(c.streams))
	all := map[item]bool{}
	c.local.forEach(func(of item) { all[of] = true })
	c.parent.forEach(func(of item) { all[of] = true })
	var items []item
	for of := range all {
		if wanted := decide(c.facts(of)); wanted != nothing && wanted != conflict && c.queue.NumRequeues(of) == 0 {
			items = append(items, of)
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
	for _, items := range c.unsettled {
		count += len(items)
	}
	return count
}

func (c *Syncer) next(ctx context.Context) bool {
	of, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(of)
	c.lock.Lock()
	event := c.unsettled[of.key.Shard][of]
	c.lock.Unlock()
	err := c.sync(ctx, of)
	switch {
	case ctx.Err() != nil:
		return true
	case err == errWait:
		c.queue.AddAfter(of, minRetry)
		return true
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		c.queue.AddRateLimited(of) // an event follows
		return true
	case err != nil:
		c.failed(of, err)
		c.queue.AddRateLimited(of)
		return true
	}
	c.queue.Forget(of)
	c.succeeded(of)
	c.close(of, event)
	return true
}

// setAvailable records whether both caches are available. When they become so, it ends the backoff of failed items.
func (c *Syncer) setAvailable(now bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if now && !c.available {
		for of := range c.failing {
			c.queue.Forget(of)
		}
	}
	c.available = now
}

// failed and succeeded track failing items. The first failure and the last recovery are logged: a parent that rejects a
// shard over its quota may reject thousands of objects.
func (c *Syncer) failed(of item, reason error) {
	c.lock.Lock()
	first := len(c.failing) == 0
	c.failing[of] = struct{}{}
	c.lock.Unlock()
	if first {
		c.log.Error(reason, "Synchronizing an object with the parent cache failed, will retry; for others see atoll_cache_parent_pending", "resource", of.gvr.GroupResource(), "key", of.key)
		return
	}
	c.log.V(2).Info("Synchronizing an object with the parent cache failed, will retry", "resource", of.gvr.GroupResource(), "key", of.key, "reason", reason)
}

// succeeded is described at failed.
func (c *Syncer) succeeded(of item) {
	c.lock.Lock()
	_, was := c.failing[of]
	delete(c.failing, of)
	last := was && len(c.failing) == 0
	c.lock.Unlock()
	if last {
		c.log.Info("All failed objects are synchronized with the parent cache")
	}
}

// close removes an item from unsettled unless it had another event.
func (c *Syncer) close(of item, event uint64) {
	c.lock.Lock()
	defer c.lock.Unlock()
	items := c.unsettled[of.key.Shard]
	if items[of] != event {
		return
	}
	delete(items, of)
	if len(items) == 0 {
		delete(c.unsettled, of.key.Shard)
	}
}

// facts returns the input of decide for an object.
func (c *Syncer) facts(of item) facts {
	f := facts{me: c.config.Name}
	f.local, f.deletedLocally = c.local.get(of)
	f.parent, f.deletedInParent = c.parent.get(of)
	reported, beat := c.local.report(of.key.Shard)
	elsewhere, lastBeat := c.parent.report(of.key.Shard)
	switch {
	case !elsewhere.exists:
		f.unowned = true
	case elsewhere.via == f.me:
		f.owned = true
	case reported.exists && !reported.down:
		// The shard has reported in both caches. It has moved to this one if it still reports in this one only.
		f.moving = c.now().Sub(beat) < c.config.ShardTimeout
		f.owned = f.moving && c.now().Sub(lastBeat) >= c.config.ShardTimeout
	}
	return f
}

// mustWait returns whether the report of a shard must wait for its objects, and whether it has waited too long.
func (c *Syncer) mustWait(shard string) (mustWait, tooLong bool) {
	ready := c.local.synced(c.streams) && c.parent.synced(c.streams)
	c.lock.Lock()
	defer c.lock.Unlock()
	report := item{client.Reports, reportKey(shard)}
	for of := range c.unsettled[shard] {
		ready = ready && of == report
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
