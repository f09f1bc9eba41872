package workspaces

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// ControllerOptions configure a Controller of requests of type R.
type ControllerOptions[R comparable] struct {
	// Name is the name of the controller in log lines; Metrics is the name of its queue in metrics, and empty means none.
	Name, Metrics string
	Reconciler    reconcile.TypedReconciler[R]
	// ClusterOf returns the logical cluster of a request.
	ClusterOf func(R) string
	// Workers is how many requests are reconciled concurrently; WorkersOfCluster is how many of them are of one logical cluster, so that
	// one whose requests take long, for example because of a slow webhook, leaves workers to others.
	Workers, WorkersOfCluster int
	// Timeout bounds one reconciliation.
	Timeout time.Duration
	// MinRetry and MaxRetry bound the delay after an error. A failing request delays no other.
	MinRetry, MaxRetry time.Duration
	Log                logr.Logger
	// LogValues returns the keys and values that name a request in log lines; nil means none.
	LogValues func(R) []any
	// OnStart is called when the controller accepts requests.
	OnStart func()
}

// Controller reconciles requests. It takes turns between logical clusters: one with many requests delays the first request of another by
// one request.
type Controller[R comparable] struct {
	controller controller.TypedController[R]
	queue      atomic.Pointer[workqueue.TypedRateLimitingInterface[R]] // nil before the start
}

// NewController returns a controller, which does nothing before Start.
func NewController[R comparable](o ControllerOptions[R]) (*Controller[R], error) {
	unique := true // several controllers of one name may run in a process
	typed, err := controller.NewTypedUnmanaged(o.Name, controller.TypedOptions[R]{
		Reconciler: o.Reconciler, MaxConcurrentReconciles: o.Workers, SkipNameValidation: &unique, ReconciliationTimeout: o.Timeout,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[R](o.MinRetry, o.MaxRetry),
		NewQueue: func(_ string, limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
			return newRequestQueue(o, limiter)
		},
		LogConstructor: newLogConstructor(o),
	})
	if err != nil {
		return nil, fmt.Errorf("building the controller %s: %w", o.Name, err)
	}
	c := &Controller[R]{controller: typed}
	return c, typed.Watch(source.TypedFunc[R](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
		c.queue.Store(&queue)
		o.OnStart()
		return nil
	}))
}

// Start reconciles until the context ends.
func (c *Controller[R]) Start(ctx context.Context) error { return c.controller.Start(ctx) }

// Add enqueues a request. Before the start it does nothing: OnStart enqueues what exists.
func (c *Controller[R]) Add(request R) {
	if queue := c.queue.Load(); queue != nil {
		(*queue).Add(request)
	}
}

// NumRequeues returns how many consecutive errors a request has had. Callers must call it during a reconciliation.
func (c *Controller[R]) NumRequeues(request R) int { return (*c.queue.Load()).NumRequeues(request) }

func newRequestQueue[R comparable](o ControllerOptions[R], limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[R]{
		Name: o.Metrics,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[R]{
			Name: o.Metrics, Queue: newFairQueue(o.Metrics, o.ClusterOf, o.WorkersOfCluster),
		}),
	})
}

// newLogConstructor returns a constructor of loggers that name the request, which controller-runtime does only for its own request type.
func newLogConstructor[R comparable](o ControllerOptions[R]) func(*R) logr.Logger {
	log := o.Log.WithValues("controller", o.Name)
	return func(request *R) logr.Logger {
		if request == nil || o.LogValues == nil {
			return log
		}
		return log.WithValues(o.LogValues(*request)...)
	}
}
