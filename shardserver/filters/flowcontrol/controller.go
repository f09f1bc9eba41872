// Package flowcontrol schedules requests so that the load of one logical cluster does not increase the latency of
// others. It uses the stock priority-and-fairness filter and the stock fair queues; in addition, a flow is a logical
// cluster and not a user, and a logical cluster with few requests never waits for one with many.
//
// Upstream reads its priority levels from FlowSchema objects, which a shard does not serve: they would be objects of
// one logical cluster with effects on all. The levels here are fixed.
//
// There is no state for logical clusters without requests in flight, and no metric label contains their names.
package flowcontrol

import (
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"runtime"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Limits are the limits of the priority levels.
type Limits struct {
	// GuaranteedPerFlow is the number of concurrent requests of one logical cluster that use the Calm level. Further ones share
	// the Busy level with those of all other logical clusters.
	GuaranteedPerFlow int
	// GuaranteedSeats is the number of seats for requests within the allowance of their logical cluster.
	GuaranteedSeats int
	// SharedSeats is the number of seats for requests beyond the allowance of their logical cluster.
	SharedSeats int
	// WildcardSeats is the number of seats for requests to all logical clusters.
	WildcardSeats int
	// MaxSlow bounds the requests that continue without a seat after they have taken longer than SlowAfter. Such requests
	// mostly wait: for a webhook, or for a client that reads slowly.
	MaxSlow   int
	SlowAfter time.Duration
	// MaxPerFlow bounds the concurrent requests of one logical cluster, including slow ones. Further ones wait for those of
	// the same logical cluster, without occupying a queue that others use.
	MaxPerFlow int
}

// DefaultLimits depend on the number of processors. A single busy logical cluster uses at most as many seats as there
// are processors, one within its allowance and those of the Busy level: requests that run concurrently compete for
// processors, and those that wait do not. This keeps the latency of logical clusters with few requests independent of
// the load of others.
func DefaultLimits() Limits {
	processors := runtime.GOMAXPROCS(0)
	return Limits{
		GuaranteedPerFlow: 1, GuaranteedSeats: max(64, 50*processors), SharedSeats: max(1, processors-1), WildcardSeats: max(4, processors),
		MaxSlow: 400, SlowAfter: 100 * time.Millisecond, MaxPerFlow: max(16, 4*processors),
	}
}

// Queues of a level. Shuffle sharding assigns each flow a hand of queues, and a request waits in the shortest of them:
// with a hand of 4 out of 128, the probability that two flows have the same hand is one in ten million.
const (
	queues      = 128
	queueLength = 50
	handSize    = 4
)

// Controller implements flowcontrol.Interface. It is safe for concurrent use.
type Controller struct {
	limits    Limits
	flowOwner FlowOwnerFunc
	inFlight  counter // requests in flight
	slow      counter // those of them that run without a seat
	perFlow   limiter
	seed      maphash.Seed

	exempt, guaranteed, shared, wildcard *level
}

var _ flowcontrol.Interface = &Controller{}

// level is a priority level: its queues, and its names in responses, logs and metrics. The exempt level has no queues.
type level struct {
	schema *flowcontrolv1.FlowSchema
	config *flowcontrolv1.PriorityLevelConfiguration
	queues fq.QueueSet
}

// FlowOwnerFunc returns the flow owner of a user's request to the logical cluster of the context: the logical cluster, if the
// user may access it.
type FlowOwnerFunc func(ctx context.Context, u user.Info) string

// New returns a controller. It calls payer for requests to a busy logical cluster: users without access are refused
// later and must not occupy seats of the logical cluster until then.
func New(limits Limits, flowOwner FlowOwnerFunc) (*Controller, error) {
	c := &Controller{limits: limits, flowOwner: flowOwner, seed: maphash.MakeSeed()}
	c.inFlight.counts, c.slow.counts = map[flow]int{}, map[flow]int{}
	c.perFlow = limiter{flows: map[flow]*flowState{}, limit: limits.MaxPerFlow, maxWaiting: handSize * queueLength}
	c.exempt = newLevel("exempt")
	clock := eventclock.Real{}
	factory := queueset.NewQueueSetFactory(clock)
	for _, spec := range []struct {
		level *(*level)
		name  string
		seats int
	}{{&c.guaranteed, "calm", limits.GuaranteedSeats}, {&c.shared, "busy", limits.SharedSeats}, {&c.wildcard, "wildcard", limits.WildcardSeats}} {
		created := newLevel(spec.name)
		labels := []string{spec.name}
		completer, err := factory.BeginConstruction(
			fq.QueuingConfig{Name: spec.name, DesiredNumQueues: queues, QueueLengthLimit: queueLength, HandSize: handSize},
			fcmetrics.RatioedGaugeVecPhasedElementPair(fcmetrics.PriorityLevelConcurrencyGaugeVec, 1, 1, labels),
			fcmetrics.PriorityLevelExecutionSeatsGaugeVec.NewForLabelValuesSafe(0, 1, labels),
			fcmetrics.NewUnionGauge(fq.NewNamedIntegrator(clock, spec.name), fcmetrics.ApiserverSeatDemands.NewForLabelValuesSafe(0, 1, labels)))
		if err != nil {
			return nil, fmt.Errorf("queues of level %s: %w", spec.name, err)
		}
		created.queues = completer.Complete(fq.DispatchingConfig{ConcurrencyLimit: spec.seats, ConcurrencyDenominator: spec.seats})
		*spec.level = created
	}
	return c, nil
}

func newLevel(name string) *level {
	meta := metav1.ObjectMeta{Name: name, UID: types.UID(name)}
	return &level{
		schema: &flowcontrolv1.FlowSchema{ObjectMeta: meta, Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}}},
		config: &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: meta},
	}
}

// Handle executes a request when it gets a seat. It returns without executing it if the queue is full or the context
// ends first.
func (c *Controller) Handle(ctx context.Context, digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	_ func() fcrequest.WorkEstimate, noteQueue fq.QueueNoteFn, execute func()) {
	owner, exempt := flowOf(ctx, digest)
	if exempt {
		note(c.exempt.schema, c.exempt.config, "")
		fcmetrics.AddDispatch(ctx, c.exempt.config.Name, c.exempt.schema.Name)
		execute()
		return
	}
	if owner.inCluster && c.inFlight.get(owner) >= c.limits.GuaranteedPerFlow {
		owner.name = c.flowOwner(ctx, digest.User)
	}
	count := c.inFlight.add(owner)
	defer c.inFlight.remove(owner)
	target := c.guaranteed
	switch {
	case owner.wildcard:
		target = c.wildcard
	case count > c.limits.GuaranteedPerFlow:
		target = c.shared
	}
	note(target.schema, target.config, owner.name)
	arrived := time.Now()
	if !owner.wildcard {
		if !c.perFlow.acquire(ctx, owner) {
			fcmetrics.ObserveWaitingDuration(ctx, target.config.Name, target.schema.Name, "false", time.Since(arrived))
			return
		}
		defer c.perFlow.release(owner)
	}
	c.serve(ctx, arrived, target, owner, digest, noteQueue, execute)
}

// serve waits for a seat and executes the request. Every request needs one seat: upstream's work estimates of lists and
// writes count objects over all logical clusters here, and the fair queues charge the actual execution time.
//
// A separate goroutine holds the seat, so that it can be released before the request has ended.
func (c *Controller) serve(ctx context.Context, arrived time.Time, target *level, owner flow, digest flowcontrol.RequestDigest, noteQueue fq.QueueNoteFn, execute func()) {
	level, schema := target.config.Name, target.schema.Name
	queued, _ := target.queues.StartRequest(ctx, &fcrequest.WorkEstimate{InitialSeats: 1}, maphash.String(c.seed, owner.name), owner.name, schema, digest.RequestInfo, digest.User, noteQueue)
	if queued == nil {
		fcmetrics.ObserveWaitingDuration(ctx, level, schema, "false", time.Since(arrived))
		return
	}
	dispatched, ended, released := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	go func() {
		slow := false
		queued.Finish(func() {
			queueset.OnRequestDispatched(queued)
			close(dispatched)
			slow = c.holdSeat(owner, ended)
		})
		released <- slow
	}()
	select {
	case <-dispatched:
	case slow := <-released:
		select {
		case <-dispatched: // the request is slow before it began, because this goroutine was not scheduled in time
			released <- slow
		default: // the request left the queue without a seat
			fcmetrics.ObserveWaitingDuration(ctx, level, schema, "false", time.Since(arrived))
			return
		}
	}
	started := time.Now()
	fcmetrics.ObserveWaitingDuration(ctx, level, schema, "true", started.Sub(arrived))
	apirequest.TrackAPFQueueWaitLatency(ctx, started.Sub(arrived))
	fcmetrics.AddDispatch(ctx, level, schema)
	defer func() {
		close(ended)
		if <-released {
			c.slow.remove(owner)
		}
		fcmetrics.ObserveExecutionDuration(ctx, level, schema, time.Since(started))
	}()
	execute()
}

// holdSeat keeps a seat until the request has ended or counts as slow, and reports which.
func (c *Controller) holdSeat(owner flow, ended <-chan struct{}) (slow bool) {
	timer := time.NewTimer(c.limits.SlowAfter)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-timer.C:
			if c.slow.addWithin(owner, c.limits.MaxSlow) {
				return true
			}
			timer.Reset(c.limits.SlowAfter)
		}
	}
}

// Run waits for the stop channel: the levels are fixed.
func (c *Controller) Run(stop <-chan struct{}) error {
	<-stop
	return nil
}

// Install adds no debugging endpoints, because they would expose the names of logical clusters.
func (c *Controller) Install(*mux.PathRecorderMux) {}

// RegisterWatch does nothing: a write is delivered only to the watchers of its own logical cluster.
func (c *Controller) RegisterWatch(*http.Request) flowcontrol.ForgetWatchFunc { return func() {} }

// GetInterestedWatchCount returns 0: work estimates are not used.
func (c *Controller) GetInterestedWatchCount(*apirequest.RequestInfo) int { return 0 }

// GetMaxSeats returns 1: work estimates are not used.
func (c *Controller) GetMaxSeats(string) uint64 { return 1 }

// SetMaxSeats does nothing: seats are fixed.
func (c *Controller) SetMaxSeats(string, uint64) {}

// ForgetPriorityLevel does nothing: levels are fixed.
func (c *Controller) ForgetPriorityLevel(string) {}
