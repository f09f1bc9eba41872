// Package controller runs the shard's controllers with controller-runtime's typed controller, over all logical
// clusters.
//
// It adds what a shard needs: requests contain the logical cluster, all controllers of a process share one informer per
// resource, which keeps no second copy of objects, and leader election uses the shard's own API. Controllers read
// through storage.Reader from the watch cache. There is no state per logical cluster.
//
// The package must not depend on any API group; reconcilers are in other packages (tenancy, lifecycle, ...).
package controller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	defaultMaxConcurrentReconciles = 8
	// reconcileTimeout bounds one call of Reconcile, so that a call without an answer cannot block a worker.
	reconcileTimeout = 2 * time.Minute
	// A failed request is retried after retryBase, then twice that, and so on up to retryMax.
	retryBase = 10 * time.Millisecond
	retryMax  = time.Minute
)

// Request identifies one object of one logical cluster.
type Request struct {
	ClusterName logicalcluster.Name
	Namespace   string
	Name        string
}

// String returns "<cluster>|<namespace>/<name>", without the namespace for cluster-scoped objects.
func (r Request) String() string {
	if r.Namespace == "" {
		return r.ClusterName.String() + "|" + r.Name
	}
	return r.ClusterName.String() + "|" + r.Namespace + "/" + r.Name
}

// Result is controller-runtime's result of a reconciliation.
type Result = reconcile.Result

// MapFunc returns the requests to enqueue for an event. It must return quickly and must not modify the object, which is
// shared with the watch cache. Events are Added (also for all existing objects when a watch restarts), Modified and
// Deleted. A deletion during a disconnected watch is not delivered; in this case all of the controller's other inputs
// are replayed as Added.
type MapFunc func(watch.Event) []Request

// Source is one resource whose events a controller handles.
type Source struct {
	Resource schema.GroupResource
	MapFunc  MapFunc
	// Global adds the events of objects that other shards publish. Resources for which Registry.IsRemoteOnly
	// returns true have no others.
	Global bool
	// WatchFunc, if set, is the source of events instead of storage. Resource is only a name then.
	WatchFunc informer.WatchFunc
}

// Controller is a reconciler and its sources.
type Controller struct {
	// Name is unique within a process; metrics and logs carry it.
	Name string
	// Sources must include every resource that Reconcile reads, or it reacts to changes late.
	Sources []Source
	// MaxConcurrentReconciles is the number of keys that are reconciled concurrently; 0 means 8. A key is reconciled by one worker at a
	// time.
	MaxConcurrentReconciles int
	// Reconcile brings one object to its desired state. The logical cluster of the context is that of the key. An error
	// is retried with backoff; a conflict is retried without a log entry.
	Reconcile reconcile.TypedFunc[Request]
}

// RequestForObject is the MapFunc of a controller that reconciles the resource itself.
func RequestForObject(event watch.Event) []Request {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	return []Request{{ClusterName: logicalcluster.Of(object), Namespace: object.GetNamespace(), Name: object.GetName()}}
}

// RequestsForObjects returns requests for the cluster-scoped objects of a logical cluster, or of all for the wildcard, that
// match; nil matches all. There are none while the resource is not installed: the events of its objects follow.
func RequestsForObjects[T client.Object](reader *storage.Reader[T], cluster logicalcluster.Name, matches func(T) bool) []Request {
	objects, err := reader.List(logicalcluster.With(context.Background(), cluster), "", nil)
	if err != nil {
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			klog.ErrorS(err, "Failed to list the objects that an event affects", "resource", reader.Resource(), "cluster", cluster)
		}
		return nil
	}
	var requests []Request
	for _, object := range objects {
		if matches == nil || matches(object) {
			requests = append(requests, Request{ClusterName: logicalcluster.Of(object), Name: object.GetName()})
		}
	}
	return requests
}

// runningController is a controller with its queue, for one run.
type runningController struct {
	Controller
	*Typed[Request]
}

func newRunningController(c Controller) *runningController {
	if c.MaxConcurrentReconciles <= 0 {
		c.MaxConcurrentReconciles = defaultMaxConcurrentReconciles
	}
	return &runningController{Controller: c, Typed: NewTyped(Options[Request]{
		Name: c.Name, MaxConcurrentReconciles: c.MaxConcurrentReconciles, Timeout: reconcileTimeout,
		RetryBase: retryBase, RetryMax: retryMax, ClusterName: ClusterNameOf, Reconcile: c.Reconcile,
	})}
}

// ClusterNameOf returns the logical cluster of a request, for Options.
func ClusterNameOf(req Request) logicalcluster.Name { return req.ClusterName }
