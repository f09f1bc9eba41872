package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

const (
	// minBackoff and maxBackoff bound the delay until a shard that is up again is watched.
	minBackoff, maxBackoff = 100 * time.Millisecond, 5 * time.Second
	// minWatchSeconds is the minimum duration of a watch; the maximum is twice that.
	minWatchSeconds = 300
)

// syncStatus is the status of one reflector.
type syncStatus struct {
	mu      sync.Mutex
	synced  bool
	failure error
}

func (s *syncStatus) set(synced bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = s.synced || synced
	s.failure = failure
}

// get returns whether a complete list was ever received, and the last failure since then.
func (s *syncStatus) get() (synced bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, s.failure
}

// eventHandler receives the objects of a reflector.
type eventHandler interface {
	// onListStart starts a list, onListPage receives a page of it, and onListEnd completes it. A list that fails is started
	// again.
	onListStart()
	onListPage(objects []runtime.Object)
	onListEnd()
	onPut(object runtime.Object) error
	onDelete(object runtime.Object) error
}

// reflector lists a resource once and then watches it. After a disconnect it continues at the last resource version, and lists
// again only if the server does not have the events since then.
//
// A client-go reflector would buffer a list before it passes it on, and list again after many kinds of disconnects, which is
// expensive for one resource with 100,000 objects.
type reflector struct {
	resourceClient
	handler eventHandler
	// shard is the name of the server in logs.
	shard  string
	status *syncStatus

	// version is the last resource version; empty if the resource must be listed.
	version string
}

// run lists and watches until the context ends. While the server is down it retries with exponential backoff and logs the
// outage once; the handler keeps the last known state.
func (r *reflector) run(ctx context.Context) {
	retry := wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 0.3, Steps: 20, Cap: maxBackoff}
	backoff := retry
	_ = wait.DelayFunc(func() time.Duration { return backoff.Step() }).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		for {
			progress, err := r.listAndWatch(ctx)
			if ctx.Err() != nil {
				return true, nil
			}
			if progress {
				backoff = retry
			}
			if err != nil {
				r.onError(ctx, err)
				return false, nil
			}
		}
	})
}

// onError records a failure, and resets what the next attempt cannot use.
func (r *reflector) onError(ctx context.Context, err error) {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, resourceVersionTooLarge):
		klog.FromContext(ctx).V(2).Info("Listing a shard again", "shard", r.shard, "resource", r.resource, "reason", err.Error())
		r.version = ""
		return
	case apierrors.IsNotFound(err) && r.identity != nil:
		r.identity.invalidate()
		r.version = ""
	case errors.Is(err, errInvalidEvent):
		r.version = ""
	}
	if _, before := r.status.get(); before == nil {
		klog.FromContext(ctx).Error(err, "Cannot watch a shard, retrying; its last known state stays in use", "shard", r.shard, "resource", r.resource)
	}
	r.status.set(false, err)
}

// resourceVersionTooLarge is the cause of the error of a server whose data was restored to an earlier version.
const resourceVersionTooLarge = "ResourceVersionTooLarge"

// errInvalidEvent ends a watch with an event whose object has no metadata.
var errInvalidEvent = errors.New("invalid event")

// listAndWatch lists if necessary, and watches until the watch ends. progress reports whether the server answered.
func (r *reflector) listAndWatch(ctx context.Context) (progress bool, err error) {
	if r.version == "" {
		if r.version, err = r.list(ctx); err != nil {
			return false, err
		}
		r.setConnected(ctx)
		progress = true
	}
	seconds := minWatchSeconds + rand.Int64N(minWatchSeconds)
	events, err := r.watch(ctx, r.version, seconds)
	if err != nil {
		return progress, fmt.Errorf("watching %s: %w", r.resource, err)
	}
	defer events.Stop()
	r.setConnected(ctx)
	started := time.Now()
	for event := range events.ResultChan() {
		if err := r.handle(event); err != nil {
			return true, fmt.Errorf("watching %s: %w", r.resource, err)
		}
		progress = true
	}
	if !progress && time.Since(started) < time.Second {
		return false, fmt.Errorf("watching %s: the watch ended at once", r.resource)
	}
	return true, nil
}

func (r *reflector) setConnected(ctx context.Context) {
	if synced, before := r.status.get(); before != nil && synced {
		klog.FromContext(ctx).Info("Watching a shard again", "shard", r.shard, "resource", r.resource)
	}
	r.status.set(true, nil)
}

// list lists all objects page by page and returns the resource version of the list.
func (r *reflector) list(ctx context.Context) (string, error) {
	token := ""
	r.handler.onListStart()
	for {
		list, err := r.listPage(ctx, token)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", r.resource, err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", r.resource, err)
		}
		r.handler.onListPage(objects)
		m, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", r.resource, err)
		}
		if token = m.GetContinue(); token == "" {
			r.handler.onListEnd()
			return m.GetResourceVersion(), nil
		}
	}
}

// handle passes an event to the handler. An invalid object is logged and skipped, so that it does not affect others.
func (r *reflector) handle(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errInvalidEvent, err)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		err = r.handler.onPut(event.Object)
	case watch.Deleted:
		err = r.handler.onDelete(event.Object)
	}
	if err != nil {
		klog.ErrorS(err, "Ignoring an invalid object", "shard", r.shard, "resource", r.resource)
	}
	r.version = object.GetResourceVersion()
	return nil
}
