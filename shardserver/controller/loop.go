package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Work says how a Loop treats its keys.
type Work[K comparable] struct {
	// Name is unique within a process; metrics and logs carry it.
	Name string
	// Workers is how many keys are worked on at once. One key is never worked on twice at once.
	Workers int
	// Timeout bounds one call of Do, so that a request without an answer cannot hold a worker.
	Timeout time.Duration
	// A failed key is tried again after RetryBase, then twice that, and so on up to RetryMax.
	RetryBase, RetryMax time.Duration
	// Cluster is the logical cluster that the context of Do goes to.
	Cluster func(K) logicalcluster.Name
	// Describe returns names and values that tell of a key in a log, beside its cluster.
	Describe func(K) []any
	// Do works on one key. It returns when to do so again, whatever happens until then; 0 waits until the key is added.
	// An error is retried with growing delay.
	Do func(context.Context, K) (again time.Duration, err error)
	// Quiet tells which errors are retried without a word in the log, conflicts aside; nil: none.
	Quiet func(error) bool
}

// Loop is a queue of keys and the workers that empty it, for one run. It is how everything in a shard works that is told
// of events and answers them later.
type Loop[K comparable] struct {
	work  Work[K]
	queue workqueue.TypedRateLimitingInterface[K]
}

// NewLoop returns a loop that keys can be added to at once.
func NewLoop[K comparable](work Work[K]) *Loop[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](work.RetryBase, work.RetryMax)
	return &Loop[K]{work: work, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{Name: work.Name})}
}

// Add has a key worked on soon.
func (l *Loop[K]) Add(key K) { l.queue.Add(key) }

// AddAfter has a key worked on after some time.
func (l *Loop[K]) AddAfter(key K, after time.Duration) { l.queue.AddAfter(key, after) }

// Run works until the context ends, and returns when the last worker has finished its key.
func (l *Loop[K]) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range l.work.Workers {
		workers.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	workers.Wait()
}

func (l *Loop[K]) next(ctx context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	again, err := l.do(ctx, key)
	switch {
	case err == nil:
		reconciles.WithLabelValues(l.work.Name, outcomeSuccess).Inc()
		l.queue.Forget(key)
		if again > 0 {
			l.queue.AddAfter(key, again)
		}
	case apierrors.IsConflict(err):
		// The watch cache was behind. The event that makes it catch up is on its way.
		reconciles.WithLabelValues(l.work.Name, outcomeConflict).Inc()
		l.queue.AddRateLimited(key)
	case ctx.Err() != nil:
		return false
	case storage.IsUndecided(err):
		// What other shards have is not known. When it is, the events of that make it worth looking again.
		reconciles.WithLabelValues(l.work.Name, outcomeUndecided).Inc()
		klog.FromContext(ctx).V(2).Info("Reconciling waits for what other shards have", "controller", l.work.Name, "cluster", l.work.Cluster(key), "reason", err)
		l.queue.AddRateLimited(key)
	default:
		reconciles.WithLabelValues(l.work.Name, outcomeError).Inc()
		if l.work.Quiet == nil || !l.work.Quiet(err) {
			about := append([]any{"controller", l.work.Name, "cluster", l.work.Cluster(key)}, l.work.Describe(key)...)
			klog.FromContext(ctx).Error(err, "Reconciling failed, will retry", about...)
		}
		l.queue.AddRateLimited(key)
	}
	return true
}

// do turns a panic into an error: one object that a controller cannot stand must not end the shard.
func (l *Loop[K]) do(ctx context.Context, key K) (_ time.Duration, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(logicalcluster.With(ctx, l.work.Cluster(key)), l.work.Timeout)
	defer cancel()
	return l.work.Do(ctx, key)
}
