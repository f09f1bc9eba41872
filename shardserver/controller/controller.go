// Package controller runs the shard's controllers (wall W6). A controller keeps no second copy of what it watches: it
// gets events of all logical clusters from one wildcard watch per resource and process, reads through storage.Reader
// from the watch cache, and has one queue whose keys carry the cluster. Nothing here exists per logical cluster.
//
// The package knows no API group; what a controller does lives elsewhere (tenancy, lifecycle, ...).
package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

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
	// Everywhere adds the events of what other shards have published. Resources for which storage.OnlyElsewhere holds
	// have no others.
	Everywhere bool
	// Stream is where the events come from instead of storage, for what is in none: first what exists as Added, then a
	// Bookmark, then changes. It is called again when the stream has ended. The Resource then is but a name.
	Stream func(context.Context) (watch.Interface, error)
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

// OfKey returns the logical cluster of a key, and DescribeKey what else tells of it, for loops whose keys these are.
func OfKey(key Key) logicalcluster.Name { return key.Cluster }

// DescribeKey is explained at OfKey.
func DescribeKey(key Key) []any { return []any{"namespace", key.Namespace, "name", key.Name} }

// running is a controller with its queue, for as long as it runs.
type running struct {
	Controller
	*Loop[Key]
	// unheard counts the sources that have not told what exists. Work begins without those that tell nothing for a while:
	// what a look before that saw, and what is deleted before the source's own look, would be seen by nobody.
	unheard sync.WaitGroup
}

func newRunning(c Controller) *running {
	if c.Workers <= 0 {
		c.Workers = defaultWorkers
	}
	return &running{Controller: c, Loop: NewLoop(Work[Key]{
		Name: c.Name, Workers: c.Workers, Timeout: reconcileTimeout, RetryBase: retryBase, RetryMax: retryMax,
		Cluster: OfKey, Describe: DescribeKey,
		Do: func(ctx context.Context, key Key) (time.Duration, error) {
			result, err := c.Reconcile(ctx, key)
			return result.RequeueAfter, err
		},
	})}
}
