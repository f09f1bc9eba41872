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
	// Allowance is the number of concurrent requests of one logical cluster that use the Calm level. Further ones share
	// the Busy level with those of all other logical clusters.
	Allowance int
	// Calm is the number of seats for requests within the allowance of their logical cluster.
	Calm int
	// Busy is the number of seats for requests beyond the allowance of their logical cluster.
	Busy int
	// Wildcard is the number of seats for requests to all logical clusters.
	Wildcard int
	// Slow bounds the requests that continue without a seat after they have taken longer than SlowAfter. Such requests
	// mostly wait: for a webhook, or for a client that reads slowly.
	Slow      int
	SlowAfter time.Duration
	// OfOne bounds the concurrent requests of one logical cluster, including slow ones. Further ones wait for those of
	// the same logical cluster, without occupying a queue that others use.
	OfOne int
}

// DefaultLimits depend on the number of processors. A single busy logical cluster uses at most as many seats as there
// are processors, one within its allowance and those of the Busy level: requests that run concurrently compete for
// processors, and those that wait do not. This keeps the latency of logical clusters with few requests independent of
// the load of others.
func DefaultLimits() Limits {
	processors := runtime.GOMAXPROCS(0)
	return Limits{
		Allowance: 1, Calm: max(64, 50*processors), Busy: max(1, processors-1), Wildcard: max(4, processors),
		Slow: 400, SlowAfter: 100 * time.Millisecond, OfOne: max(16, 4*processors),
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
	limits   Limits
	payer    Payer
	inFlight counter // requests in flight
	slow     counter // those of them that run without a seat
	ofOne    turns
	seed     maphash.Seed

	exempt, calm, busy, wildcard *level
}

var _ flowcontrol.Interface = &Controller{}

// level is a priority level: its queues, and its names in responses, logs and metrics. The exempt level has no queues.
type level struct {
	schema *flowcontrolv1.FlowSchema
	config *flowcontrolv1.PriorityLevelConfiguration
	queues fq.QueueSet
}

// Payer returns the flow owner of a user's request to the logical cluster of the context: the logical cluster, if the
// user may access it.
type Payer func(ctx context.Context, u user.Info) string

// New returns a controller. It calls payer for requests to a busy logical cluster: users without access are refused
// later and must not occupy seats of the logical cluster until then.
func New(limits Limits, payer Payer) (*Controller, error) {
	c := &Controller{limits: limits, payer: payer, seed: maphash.MakeSeed()}
	c.inFlight.of, c.slow.of = map[flow]int{}, map[flow]int{}
	c.ofOne = turns{of: map[flow]*turn{}, limit: limits.OfOne, waiting: handSize * queueLength}
	c.exempt = named("exempt")
	clock := eventclock.Real{}
	factory := queueset.NewQueueSetFactory(clock)
	for _, wanted := range []struct {
		level *(*level)
		name  string
		seats int
	}{{&c.calm, "calm", limits.Calm}, {&c.busy, "busy", limits.Busy}, {&c.wildcard, "wildcard", limits.Wildcard}} {
		made := named(wanted.name)
		labels := []string{wanted.name}
		completer, err := factory.BeginConstruction(
			fq.QueuingConfig{Name: wanted.name, DesiredNumQueues: queues, QueueLengthLimit: queueLength, HandSize: handSize},
			fcmetrics.RatioedGaugeVecPhasedElementPair(fcmetrics.PriorityLevelConcurrencyGaugeVec, 1, 1, labels),
			fcmetrics.PriorityLevelExecutionSeatsGaugeVec.NewForLabelValuesSafe(0, 1, labels),
			fcmetrics.NewUnionGauge(fq.NewNamedIntegrator(clock, wanted.name), fcmetrics.ApiserverSeatDemands.NewForLabelValuesSafe(0, 1, labels)))
		if err != nil {
			return nil, fmt.Errorf("queues of level %s: %w", wanted.name, err)
		}
		made.queues = completer.Complete(fq.DispatchingConfig{ConcurrencyLimit: wanted.seats, ConcurrencyDenominator: wanted.seats})
		*wanted.level = made
	}
	return c, nil
}

func named(name string) *level {
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
	of, exempt := flowOf(ctx, digest)
	if exempt {
		note(c.exempt.schema, c.exempt.config, "")
		fcmetrics.AddDispatch(ctx, c.exempt.config.Name, c.exempt.schema.Name)
		execute()
		return
	}
	if of.inside && c.inFlight.has(of) >= c.limits.Allowance {
		of.name = c.payer(ctx, digest.User)
	}
	count := c.inFlight.enter(of)
	defer c.inFlight.leave(of)
	to := c.calm
	switch {
	case of.everywhere:
		to = c.wildcard
	case count > c.limits.Allowance:
		to = c.busy
	}
	note(to.schema, to.config, of.name)
	arrived := time.Now()
	if !of.everywhere {
		if !c.ofOne.enter(ctx, of) {
			fcmetrics.ObserveWaitingDuration(ctx, to.config.Name, to.schema.Name, "false", time.Since(arrived))
			return
		}
		defer c.ofOne.leave(of)
	}
	c.serve(ctx, arrived, to, of, digest, noteQueue, execute)
}

// serve waits for a seat and executes the request. Every request needs one seat: upstream's work estimates of lists and
// writes count objects over all logical clusters here, and the fair queues charge the actual execution time.
//
// A separate goroutine holds the seat, so that it can be released before the request has ended.
func (c *Controller) serve(ctx context.Context, arrived time.Time, at *level, of flow, digest flowcontrol.RequestDigest, noteQueue fq.QueueNoteFn, execute func()) {
	level, schema := at.config.Name, at.schema.Name
	place, _ := at.queues.StartRequest(ctx, &fcrequest.WorkEstimate{InitialSeats: 1}, maphash.String(c.seed, of.name), of.name, schema, digest.RequestInfo, digest.User, noteQueue)
	if place == nil {
		fcmetrics.ObserveWaitingDuration(ctx, level, schema, "false", time.Since(arrived))
		return
	}
	begin, ended, released := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	go func() {
		slow := false
		place.Finish(func() {
			queueset.OnRequestDispatched(place)
			close(begin)
			slow = c.hold(of, ended)
		})
		released <- slow
	}()
	select {
	case <-begin:
	case slow := <-released:
		select {
		case <-begin: // the request is slow before it began, because this goroutine was not scheduled in time
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
			c.slow.leave(of)
		}
		fcmetrics.ObserveExecutionDuration(ctx, level, schema, time.Since(started))
	}()
	execute()
}

// hold keeps a seat until the request has ended or counts as slow, and reports which.
func (c *Controller) hold(of flow, ended <-chan struct{}) (slow bool) {
	timer := time.NewTimer(c.limits.SlowAfter)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-timer.C:
			if c.slow.enterWithin(of, c.limits.Slow) {
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
