package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Changes is a source of requests whose state is in this process instead of storage. Each watch delivers all requests that are added
// while it exists; a request that is added again before the watch has delivered it is delivered once.
type Changes struct {
	list func() []Request

	mu      sync.Mutex
	watches map[*changesWatch]struct{}
}

// NewChanges returns a source of requests. A watch first delivers those that list returns; nil means none.
func NewChanges(list func() []Request) *Changes {
	return &Changes{list: list, watches: map[*changesWatch]struct{}{}}
}

// Source returns the source for a controller, under the name of a resource.
func (c *Changes) Source(name schema.GroupResource) Source {
	return Source{Resource: name, MapFunc: RequestForObject, WatchFunc: c.Watch}
}

// Add adds requests to all watches. It does not block.
func (c *Changes) Add(requests ...Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watches {
		for _, req := range requests {
			w.pending[req] = struct{}{}
		}
		w.ready.Set()
	}
}

// Watch returns a watch, which ends with the context or when it is stopped.
func (c *Changes) Watch(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &changesWatch{
		cancel: cancel, events: make(chan watch.Event), pending: map[Request]struct{}{}, ready: background.NewSignal(),
	}
	c.mu.Lock()
	c.watches[w] = struct{}{}
	c.mu.Unlock()
	var initial []Request
	if c.list != nil { // after the registration: a request that is added now is delivered after the initial ones
		initial = c.list()
	}
	go c.run(ctx, w, initial)
	return w, nil
}

func (c *Changes) run(ctx context.Context, w *changesWatch, initial []Request) {
	defer close(w.events)
	defer w.cancel()
	defer c.remove(w)
	end := watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	}}
	if !w.sendAll(ctx, watch.Added, initial) || !w.send(ctx, end) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ready:
		}
		if !w.sendAll(ctx, watch.Modified, c.take(w)) {
			return
		}
	}
}

// take returns what the watch has to deliver.
func (c *Changes) take(w *changesWatch) []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := slices.Collect(maps.Keys(w.pending))
	w.pending = map[Request]struct{}{} // not cleared: a map keeps the memory of the most that it has held
	return requests
}

func (c *Changes) remove(w *changesWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, w)
}

// changesWatch implements watch.Interface.
type changesWatch struct {
	cancel context.CancelFunc
	events chan watch.Event
	// pending is what the watch has not delivered. The lock of Changes guards it.
	pending map[Request]struct{}
	ready   background.Signal
}

// ResultChan implements watch.Interface.
func (w *changesWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *changesWatch) Stop() { w.cancel() }

func (w *changesWatch) sendAll(ctx context.Context, kind watch.EventType, requests []Request) bool {
	for _, req := range requests {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: req.Namespace, Name: req.Name, Annotations: map[string]string{logicalcluster.AnnotationKey: req.ClusterName.String()},
		}}
		if !w.send(ctx, watch.Event{Type: kind, Object: object}) {
			return false
		}
	}
	return true
}

func (w *changesWatch) send(ctx context.Context, event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
