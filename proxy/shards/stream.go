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
	// minPause and maxPause bound how long a shard that is back stays unnoticed.
	minPause, maxPause = 100 * time.Millisecond, 5 * time.Second
	// watchSeconds is when a server ends a watch, at the earliest; at the latest it is twice that.
	watchSeconds = 300
)

// health is what is known about one stream of objects.
type health struct {
	mu      sync.Mutex
	synced  bool
	failure error
}

func (h *health) set(synced bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = h.synced || synced
	h.failure = failure
}

// get tells whether the stream ever delivered a whole list, and its last failure since then.
func (h *health) get() (synced bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.synced, h.failure
}

// sink takes what a stream brings.
type sink interface {
	// begin starts a list, page takes some of what there is, and done says that it was all. A list that fails begins anew.
	begin()
	page(objects []runtime.Object)
	done()
	put(object runtime.Object) error
	remove(object runtime.Object) error
}

// stream keeps a sink in step with a source. It lists once and then watches; after a disconnect it goes on where it was,
// and lists again only if the server does not know any more what happened since.
//
// It is no client-go reflector: that one gathers a list before it hands it on, and lists again after many kinds of
// disconnects, which is expensive where one resource of one server is 100,000 objects.
type stream struct {
	source
	to sink
	// shard names the server in logs.
	shard  string
	health *health

	// version is that of the last event; empty when all has to be listed.
	version string
}

// follow runs the stream until the context ends. A server that is away is asked again with growing pauses; the sink keeps
// what it has in the meantime. Each outage is logged once.
func (s *stream) follow(ctx context.Context) {
	fresh := func() wait.Backoff {
		return wait.Backoff{Duration: minPause, Factor: 2, Jitter: 0.3, Steps: 20, Cap: maxPause}
	}
	pauses := fresh()
	for {
		progress, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if progress {
			pauses = fresh()
		}
		if err == nil {
			continue // a watch that ended in time
		}
		s.failed(ctx, err)
		timer := time.NewTimer(pauses.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// failed remembers why the stream stands still, and drops what can be of no use to the next attempt.
func (s *stream) failed(ctx context.Context, err error) {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, resourceVersionTooLarge):
		klog.FromContext(ctx).V(2).Info("Listing a shard again", "shard", s.shard, "resource", s.resource, "reason", err.Error())
		s.version = ""
		return
	case apierrors.IsNotFound(err) && s.identity != nil:
		s.identity.forget()
		s.version = ""
	case errors.Is(err, errUnreadable):
		s.version = ""
	}
	if _, before := s.health.get(); before == nil {
		klog.FromContext(ctx).Error(err, "Cannot follow a shard, what is known of it stays; trying again", "shard", s.shard, "resource", s.resource)
	}
	s.health.set(false, err)
}

// resourceVersionTooLarge is the cause of an error of a server that was set back: it knows less than it did.
const resourceVersionTooLarge = "ResourceVersionTooLarge"

// errUnreadable is what an event ends a watch with that cannot be taken for what it should be.
var errUnreadable = errors.New("unreadable event")

// once lists if need be, and watches until that ends. progress tells that the server answered.
func (s *stream) once(ctx context.Context) (progress bool, err error) {
	if s.version == "" {
		if s.version, err = s.list(ctx); err != nil {
			return false, err
		}
		s.recovered(ctx)
		progress = true
	}
	seconds := watchSeconds + rand.Int64N(watchSeconds)
	events, err := s.watch(ctx, s.version, seconds)
	if err != nil {
		return progress, fmt.Errorf("watching %s: %w", s.resource, err)
	}
	defer events.Stop()
	s.recovered(ctx)
	began := time.Now()
	for event := range events.ResultChan() {
		if err := s.apply(event); err != nil {
			return true, fmt.Errorf("watching %s: %w", s.resource, err)
		}
		progress = true
	}
	if !progress && time.Since(began) < time.Second {
		return false, fmt.Errorf("watching %s: the watch ended at once", s.resource)
	}
	return true, nil
}

func (s *stream) recovered(ctx context.Context) {
	if synced, before := s.health.get(); before != nil && synced {
		klog.FromContext(ctx).Info("Following a shard again", "shard", s.shard, "resource", s.resource)
	}
	s.health.set(true, nil)
}

// list hands all there is to the sink and returns the version of the list.
func (s *stream) list(ctx context.Context) (string, error) {
	token := ""
	s.to.begin()
	for {
		list, err := s.page(ctx, token)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", s.resource, err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", s.resource, err)
		}
		s.to.page(objects)
		m, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", s.resource, err)
		}
		if token = m.GetContinue(); token == "" {
			s.to.done()
			return m.GetResourceVersion(), nil
		}
	}
}

// apply hands one event on. An object that cannot be used is logged by the sink and says nothing about others.
func (s *stream) apply(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		err = s.to.put(event.Object)
	case watch.Deleted:
		err = s.to.remove(event.Object)
	}
	if err != nil {
		klog.ErrorS(err, "Ignoring an object", "shard", s.shard, "resource", s.resource)
	}
	s.version = object.GetResourceVersion()
	return nil
}
