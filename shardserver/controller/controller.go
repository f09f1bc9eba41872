// Package controller runs the shard's controllers (wall W6). A controller keeps no second copy of what it watches: it
// gets events of all logical clusters from one wildcard watch per resource and process, reads through storage.Reader
// from the watch cache, and has one queue whose keys carry the cluster. Nothing here exists per logical cluster.
//
// The package knows no API group; what a controller does lives elsewhere (tenancy, lifecycle, ...).
package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	defaultWorkers = 8
	// reconcileTimeout bounds one call of Reconcile, so that a request without an answer cannot hold a worker.
	reconcileTimeout = 2 * time.Minute
	// A failed key is tried again after retryBase, then twice that, and so on up to retryMax.
	retryBase = 10 * time.Millisecond
	retryMax  = time.Minute
)

// Key addresses one object of one logical cluster.
type Key struct {
	Cluster   logicalcluster.Name
	Namespace string
	Name      string
}

// String returns "<cluster>|<namespace>/<name>", without the namespace for cluster-scoped objects.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Cluster.String() + "|" + k.Name
	}
	return k.Cluster.String() + "|" + k.Namespace + "/" + k.Name
}

// Result says when a key that did not fail is to be looked at again, whatever happens until then. The zero Result
// waits for events.
type Result struct {
	RequeueAfter time.Duration
}

// Input is one resource whose events concern a controller.
type Input struct {
	Resource schema.GroupResource
	// Keys returns what an event makes worth looking at. It must be quick and must not change the object, which it
	// shares with the watch cache. Events are Added (also for all that exists when the watch starts anew), Modified and
	// Deleted. A deletion that happened while a watch was broken is not seen: then all of the controller's inputs are
	// replayed as Added.
	Keys func(watch.Event) []Key
}

// Controller is a name, what it follows, and what it does with one key.
type Controller struct {
	// Name is unique within a process; metrics and logs carry it.
	Name string
	// Inputs must name every resource that Reconcile reads, or it acts on news too late.
	Inputs []Input
	// Workers is how many keys are worked on at once; 0 means 8. One key is never worked on twice at once.
	Workers int
	// Reconcile brings one object to its desired state. The context goes to the key's cluster. An error is retried with
	// growing delay; a conflict is retried silently.
	Reconcile func(ctx context.Context, key Key) (Result, error)
}

// ObjectKey is the Input.Keys of a controller that works on the resource itself.
func ObjectKey(event watch.Event) []Key {
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	return []Key{{Cluster: logicalcluster.Of(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}}
}

// running is a controller with its queue, for as long as it runs.
type running struct {
	Controller
	queue workqueue.TypedRateLimitingInterface[Key]
}

func newRunning(c Controller) *running {
	if c.Workers <= 0 {
		c.Workers = defaultWorkers
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[Key](retryBase, retryMax)
	return &running{Controller: c, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[Key]{Name: c.Name})}
}

// enqueue adds what an event of the resource concerns.
func (r *running) enqueue(resource schema.GroupResource, event watch.Event) {
	for _, input := range r.Inputs {
		if input.Resource != resource {
			continue
		}
		for _, key := range input.Keys(event) {
			r.queue.Add(key)
		}
	}
}

// work runs the workers until the context ends, and returns when the last has finished its key.
func (r *running) work(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	workers.Wait()
}

func (r *running) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	result, err := r.reconcile(ctx, key)
	switch {
	case err == nil:
		reconciles.WithLabelValues(r.Name, outcomeSuccess).Inc()
		r.queue.Forget(key)
		if result.RequeueAfter > 0 {
			r.queue.AddAfter(key, result.RequeueAfter)
		}
	case apierrors.IsConflict(err):
		// The watch cache was behind. The event that makes it catch up is on its way.
		reconciles.WithLabelValues(r.Name, outcomeConflict).Inc()
		r.queue.AddRateLimited(key)
	case ctx.Err() != nil:
		return false
	default:
		reconciles.WithLabelValues(r.Name, outcomeError).Inc()
		klog.FromContext(ctx).Error(err, "Reconciling failed, will retry", "controller", r.Name, "cluster", key.Cluster, "namespace", key.Namespace, "name", key.Name)
		r.queue.AddRateLimited(key)
	}
	return true
}

// reconcile turns a panic into an error: one object that a controller cannot stand must not end the shard.
func (r *running) reconcile(ctx context.Context, key Key) (_ Result, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(logicalcluster.With(ctx, key.Cluster), reconcileTimeout)
	defer cancel()
	return r.Reconcile(ctx, key)
}
