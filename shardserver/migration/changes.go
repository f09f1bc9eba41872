package migration

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// changes delivers migrations whose progress has changed to the publisher. It holds those that were not delivered yet, each
// once.
type changes struct {
	mu      sync.Mutex
	pending map[controller.Request]struct{}
	ready   chan struct{}
}

func newChanges() *changes {
	return &changes{pending: map[controller.Request]struct{}{}, ready: make(chan struct{}, 1)}
}

func (c *changes) add(key controller.Request) {
	c.mu.Lock()
	c.pending[key] = struct{}{}
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default: // a delivery is due already
	}
}

func (c *changes) take() []controller.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []controller.Request
	for key := range c.pending {
		all = append(all, key)
	}
	clear(c.pending)
	return all
}

// source returns the source of the changes for a controller.
func (c *changes) source() controller.Source {
	return controller.Source{Resource: reports, MapFunc: controller.RequestForObject, WatchFunc: c.watch}
}

// watch returns a watch of the changes.
func (c *changes) watch(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		initial := watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
		}}
		if !send(ctx, events, initial) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.ready:
			}
			for _, key := range c.take() {
				object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					Name: key.Name, Annotations: map[string]string{logicalcluster.AnnotationKey: key.ClusterName.String()},
				}}
				if !send(ctx, events, watch.Event{Type: watch.Modified, Object: object}) {
					return
				}
			}
		}
	}()
	return &changesWatch{events: events, cancel: cancel}, nil
}

func send(ctx context.Context, events chan<- watch.Event, event watch.Event) bool {
	select {
	case events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

type changesWatch struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (w *changesWatch) Stop()                          { w.cancel() }
func (w *changesWatch) ResultChan() <-chan watch.Event { return w.events }
