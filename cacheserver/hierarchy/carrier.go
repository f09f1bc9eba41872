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
	// sweepInterval is the time between two looks at everything. Events only make things faster.
	sweepInterval = 5 * time.Second
	minRetry      = 200 * time.Millisecond
	maxRetry      = 30 * time.Second
	// patience is how long the report of a shard waits for its objects, before it goes without the word that they are
	// complete.
	patience = 15 * time.Second
)

// Config is what a Carrier is made of. All fields are required.
type Config struct {
	// Name of this cache, as the parent knows it.
	Name string
	// Here leads to this cache, Parent to the one above.
	Here, Parent *client.Client
	// Silence is how long a shard has to be silent in another cache before this one takes it over, if it reports here.
	Silence time.Duration
}

// Carrier carries objects between a cache and its parent.
type Carrier struct {
	config      Config
	here, above *side
	queue       workqueue.TypedRateLimitingInterface[item]
	now         func() time.Time
	log         klog.Logger
	// streams is how many resources there are.
	streams int

	lock sync.Mutex
	// open are the items that are not settled, by shard, each with the number of the event that opened it.
	open  map[string]map[item]uint64
	event uint64
	// waiting holds since when the report of a shard waits.
	waiting map[string]time.Time
	// troubled are the items of which the last try has failed.
	troubled map[item]struct{}
	// answered says that both caches did when it was looked last.
	answered bool
}

// New returns a Carrier, which does nothing before Run.
func New(config Config) *Carrier {
	c := &Carrier{
		config:  config,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](minRetry, maxRetry)),
		now:     time.Now,
		streams: len(client.Resources()),
		log:     klog.Background().WithValues("parent", config.Parent.Address()),
		open:    map[string]map[item]uint64{},
		waiting: map[string]time.Time{}, troubled: map[item]struct{}{},
	}
	c.here, c.above = newSide("here", c.now, c.look), newSide("parent", c.now, c.look)
	return c
}

// Run carries until the context ends.
func (c *Carrier) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer metrics.ParentConnected.Set(0)
	defer metrics.ParentPending.Set(0)
	for _, resource := range client.Resources() {
		gvr := resource.GroupVersionResource
		running.Go(func() {
			c.config.Here.NewReflector(gvr, client.Position{}, follower{side: c.here, gvr: gvr, log: c.log}).Run(ctx)
		})
		running.Go(func() {
			c.config.Parent.NewReflector(gvr, client.Position{}, follower{side: c.above, gvr: gvr, log: c.log}).Run(ctx)
		})
	}
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	wait.UntilWithContext(ctx, func(context.Context) { c.sweep() }, sweepInterval)
	c.queue.ShutDown()
}

// look has items looked at.
func (c *Carrier) look(items ...item) {
	c.lock.Lock()
	for _, of := range items {
		c.event++
		if c.open[of.key.Shard] == nil {
			c.open[of.key.Shard] = map[item]uint64{}
		}
		c.open[of.key.Shard][of] = c.event
	}
	c.lock.Unlock()
	for _, of := range items {
		c.queue.Add(of)
	}
}

// sweep looks at everything that is not as it should be: what waited for another thing to happen is not told of it. What
// failed is tried again when its time has come, or both caches answer again.
func (c *Carrier) sweep() {
	connected := c.above.whole(c.streams)
	c.answering(connected && c.here.whole(c.streams))
	all := map[item]bool{}
	c.here.visit(func(of item) { all[of] = true })
	c.above.visit(func(of item) { all[of] = true })
	var items []item
	for of := range all {
		if wanted := decide(c.facts(of)); wanted != nothing && wanted != contested && c.queue.NumRequeues(of) == 0 {
			items = append(items, of)
		}
	}
	c.look(items...)
	state := 0.0
	if connected {
		state = 1
	}
	metrics.ParentConnected.Set(state)
	metrics.ParentPending.Set(float64(c.pending()))
}

func (c *Carrier) pending() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	count := 0
	for _, items := range c.open {
		count += len(items)
	}
	return count
}

func (c *Carrier) next(ctx context.Context) bool {
	of, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(of)
	c.lock.Lock()
	event := c.open[of.key.Shard][of]
	c.lock.Unlock()
	err := c.carry(ctx, of)
	switch {
	case ctx.Err() != nil:
		return true
	case err == errNotYet:
		c.queue.AddAfter(of, minRetry)
		return true
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		c.queue.AddRateLimited(of) // somebody was faster; the stream brings it
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

// answering notes whether both caches answer. When they do again, nothing that failed waits any longer.
func (c *Carrier) answering(now bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if now && !c.answered {
		for of := range c.troubled {
			c.queue.Forget(of)
		}
	}
	c.answered = now
}

// failed and succeeded keep account of what cannot be carried. There is one line when that begins and one when it ends: a
// parent that takes no more of a shard refuses thousands of objects.
func (c *Carrier) failed(of item, reason error) {
	c.lock.Lock()
	first := len(c.troubled) == 0
	c.troubled[of] = struct{}{}
	c.lock.Unlock()
	if first {
		c.log.Error(reason, "An object cannot be carried, will retry; so it may be with others, see atoll_cache_parent_pending", "resource", of.gvr.GroupResource(), "key", of.key)
		return
	}
	c.log.V(2).Info("An object cannot be carried, will retry", "resource", of.gvr.GroupResource(), "key", of.key, "reason", reason)
}

// succeeded is explained at failed.
func (c *Carrier) succeeded(of item) {
	c.lock.Lock()
	_, was := c.troubled[of]
	delete(c.troubled, of)
	last := was && len(c.troubled) == 0
	c.lock.Unlock()
	if last {
		c.log.Info("Everything that could not be carried has been")
	}
}

// close takes note that an item is settled, unless something has happened to it since.
func (c *Carrier) close(of item, event uint64) {
	c.lock.Lock()
	defer c.lock.Unlock()
	items := c.open[of.key.Shard]
	if items[of] != event {
		return
	}
	delete(items, of)
	if len(items) == 0 {
		delete(c.open, of.key.Shard)
	}
}

// facts gathers what the decision about an object is made of.
func (c *Carrier) facts(of item) facts {
	f := facts{me: c.config.Name}
	f.here, f.goneHere = c.here.get(of)
	f.above, f.goneAbove = c.above.get(of)
	reported, beat := c.here.report(of.key.Shard)
	elsewhere, lastBeat := c.above.report(of.key.Shard)
	switch {
	case !elsewhere.exists:
		f.unowned = true
	case elsewhere.via == f.me:
		f.owned = true
	case reported.exists && !reported.down:
		// The shard has reported in both places. It has moved here if only here it still does.
		f.arriving = c.now().Sub(beat) < c.config.Silence
		f.owned = f.arriving && c.now().Sub(lastBeat) >= c.config.Silence
	}
	return f
}

// waits tells whether the report of a shard has to wait for its objects, and whether it has waited for too long.
func (c *Carrier) waits(shard string) (waits, tooLong bool) {
	ready := c.here.whole(c.streams) && c.above.whole(c.streams)
	c.lock.Lock()
	defer c.lock.Unlock()
	report := item{client.Reports, reportKey(shard)}
	for of := range c.open[shard] {
		ready = ready && of == report
	}
	if ready {
		delete(c.waiting, shard)
		return false, false
	}
	if _, ok := c.waiting[shard]; !ok {
		c.waiting[shard] = c.now()
	}
	return true, c.now().Sub(c.waiting[shard]) >= patience
}
