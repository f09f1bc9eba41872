package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Options configure a Typed controller.
type Options[R comparable] struct {
	// Name is unique within a process; metrics and logs carry it.
	Name string
	// MaxConcurrentReconciles is the number of requests that are reconciled concurrently. A request is reconciled by
	// one worker at a time.
	MaxConcurrentReconciles int
	// Timeout bounds one call of Reconcile, so that a call without an answer cannot block a worker.
	Timeout time.Duration
	// A failed request is retried after RetryBase, then twice that, and so on up to RetryMax.
	RetryBase, RetryMax time.Duration
	// ClusterName returns the logical cluster of Reconcile's context.
	ClusterName func(R) logicalcluster.Name
	// Reconcile handles one request. An error is retried with backoff.
	Reconcile reconcile.TypedFunc[R]
	// IsExpected returns which errors are retried without a log entry, in addition to conflicts; nil: none.
	IsExpected func(error) bool
}

// Typed is controller-runtime's typed controller with a queue that exists before it runs. It runs once.
type Typed[R comparable] struct {
	options Options[R]
	limiter workqueue.TypedRateLimiter[R]
	queue   workqueue.TypedRateLimitingInterface[R]
}

// NewTyped returns a controller whose queue accepts requests before Run.
func NewTyped[R comparable](options Options[R]) *Typed[R] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[R](options.RetryBase, options.RetryMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[R]{Name: options.Name})
	return &Typed[R]{options: options, limiter: limiter, queue: queue}
}

// Add enqueues a request.
func (t *Typed[R]) Add(req R) { t.queue.Add(req) }

// AddAfter enqueues a request after some time.
func (t *Typed[R]) AddAfter(req R, after time.Duration) { t.queue.AddAfter(req, after) }

// Run reconciles, after the sources have synced, until the context ends. It returns when the last worker has.
func (t *Typed[R]) Run(ctx context.Context, sources ...source.TypedSource[R]) {
	defer t.queue.ShutDown()
	if err := t.run(ctx, sources); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to run a controller", "controller", t.options.Name)
	}
}

func (t *Typed[R]) run(ctx context.Context, sources []source.TypedSource[R]) error {
	logger := klog.FromContext(ctx).V(2).WithValues("controller", t.options.Name)
	c, err := controller.NewTypedUnmanaged(t.options.Name, controller.TypedOptions[R]{
		SkipNameValidation:      ptr.To(true), // one process may run several shards
		MaxConcurrentReconciles: t.options.MaxConcurrentReconciles,
		ReconciliationTimeout:   t.options.Timeout,
		Reconciler:              reconcile.TypedFunc[R](t.reconcile),
		RateLimiter:             t.limiter,
		NewQueue: func(string, workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
			return t.queue
		},
		LogConstructor: func(req *R) logr.Logger {
			if req == nil {
				return logger
			}
			return logger.WithValues("cluster", t.options.ClusterName(*req), "request", *req)
		},
	})
	if err != nil {
		return err
	}
	for _, source := range sources {
		if err := c.Watch(source); err != nil {
			return err
		}
	}
	return c.Start(ctx)
}

// reconcile calls Reconcile in the logical cluster of the request and decides what is logged.
func (t *Typed[R]) reconcile(ctx context.Context, req R) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // the queue is drained after the end
	}
	outcome := outcomeError // also after a panic
	defer func() { reconciles.WithLabelValues(t.options.Name, outcome).Inc() }()
	result, err := t.options.Reconcile(logicalcluster.With(ctx, t.options.ClusterName(req)), req)
	switch {
	case err == nil:
		outcome = outcomeSuccess
		return result, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // the watch cache is behind: the event with the newer object follows
		outcome = outcomeConflict
		klog.FromContext(ctx).V(3).Info("Reconciling conflicts with another write, will retry", "controller", t.options.Name, "request", req, "err", err)
	case ctx.Err() == context.Canceled:
		return reconcile.Result{}, nil
	case storage.IsNotSynced(err): // events follow when other shards' objects have synced
		outcome = outcomeNotSynced
		klog.FromContext(ctx).V(2).Info("Reconciling waits for objects of other shards", "controller", t.options.Name, "request", req, "err", err)
	case t.options.IsExpected != nil && t.options.IsExpected(err):
	default:
		return reconcile.Result{}, err
	}
	return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // a retry with backoff and without a logged error
}
