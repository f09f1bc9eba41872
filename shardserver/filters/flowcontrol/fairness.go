// Package fairness decides whose request is served next, so that no logical cluster's load is another one's latency. It
// is the stock priority-and-fairness filter with the stock fair queues behind it; added is that a flow is a logical
// cluster and not a user, and that a logical cluster which asks for little never waits for one which asks for much.
//
// Upstream reads its levels from FlowSchema objects, which a shard does not serve: they would belong to a logical
// cluster, and what they rule would not. The levels here are fixed.
//
// Nothing is kept for a logical cluster that has no request under way (wall W2), and no metric names one.
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

// Limits of the levels.
type Limits struct {
	// Allowance is how many requests of one logical cluster are served beside each other before its further ones have to
	// share Busy with those of all others.
	Allowance int
	// Calm is how many requests within their allowance are served at once.
	Calm int
	// Busy is how many requests beyond the allowance of their logical cluster are served at once.
	Busy int
	// Wildcard is how many requests to all logical clusters are served at once.
	Wildcard int
	// Slow is how many requests may go on without a place among the above, once they have taken longer than SlowAfter.
	// Such requests wait for others: for a webhook, or for a client that reads slowly.
	Slow      int
	SlowAfter time.Duration
	// OfOne is how many requests of one logical cluster are served beside each other in all, slow ones included. Its
	// further ones wait for its own, without a place in anybody's queue.
	OfOne int
}

// DefaultLimits fit the machine. A single logical cluster is given as many places as there are processors: requests that
// are served at once share processors, and those that wait do not. It is what makes a quiet logical cluster's latency
// independent of a loud one.
func DefaultLimits() Limits {
	processors := runtime.GOMAXPROCS(0)
	return Limits{
		Allowance: 1, Calm: max(64, 50*processors), Busy: max(1, processors-1), Wildcard: max(4, processors),
		Slow: 400, SlowAfter: 100 * time.Millisecond, OfOne: max(16, 4*processors),
	}
}

// The queues of a level. A flow is dealt a hand of queues and waits in the shortest: with a hand of 4 out of 128, two
// flows share their whole hand once in ten million.
const (
	queues      = 128
	queueLength = 50
	handSize    = 4
)

// Controller implements flowcontrol.Interface. It is safe for concurrent use.
type Controller struct {
	limits   Limits
	payer    Payer
	inFlight counter // requests that have come and not ended
	slow     counter // those of them that go on without a place
	ofOne    turns
	seed     maphash.Seed

	exempt, calm, busy, wildcard *level
}

var _ flowcontrol.Interface = &Controller{}

// level is a set of queues and the names by which responses, logs and metrics call it. A level without queues serves
// everything at once.
type level struct {
	schema *flowcontrolv1.FlowSchema
	config *flowcontrolv1.PriorityLevelConfiguration
	queues fq.QueueSet
}

// Payer names the flow that pays for a user's request to the logical cluster of the context, which is that one's name if
// the user belongs there.
type Payer func(ctx context.Context, u user.Info) string

// New returns a controller. It asks for the payer of requests to a logical cluster that is busy: those of who may not
// enter it are refused later, and must not take the places of those who may.
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

// Handle serves a request when it is its turn, or not at all: when its queue is full, or the context ends before.
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

// serve waits for a place, which every request needs one of: what upstream would estimate of a list or a write is
// counted over all logical clusters here, and the queues charge for the time that a request really takes.
//
// The place is held by a goroutine of its own, so that it can be given up before the request has ended.
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
		case <-begin: // and slow already, because this goroutine had to wait for a processor
			released <- slow
		default: // the queue gave it up
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

// hold keeps a place until the request has ended, or counts as slow, which it then tells.
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

// Run has nothing to do: the levels are fixed.
func (c *Controller) Run(stop <-chan struct{}) error {
	<-stop
	return nil
}

// Install adds no debugging endpoints: the names of flows are those of logical clusters.
func (c *Controller) Install(*mux.PathRecorderMux) {}

// RegisterWatch counts nothing: a write is offered to the watchers of its own logical cluster alone.
func (c *Controller) RegisterWatch(*http.Request) flowcontrol.ForgetWatchFunc { return func() {} }

// GetInterestedWatchCount is asked for estimates, which are not used.
func (c *Controller) GetInterestedWatchCount(*apirequest.RequestInfo) int { return 0 }

// GetMaxSeats is asked for estimates, which are not used.
func (c *Controller) GetMaxSeats(string) uint64 { return 1 }

// SetMaxSeats does nothing: seats are fixed.
func (c *Controller) SetMaxSeats(string, uint64) {}

// ForgetPriorityLevel does nothing: levels are fixed.
func (c *Controller) ForgetPriorityLevel(string) {}
