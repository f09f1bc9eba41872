package publisher

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// changeQueue queues ClusterCachedResources whose objects have changed, as a watch for controllers. A key is queued
// once until it is read.
type changeQueue struct {
	mu       sync.Mutex
	watchers map[*queueWatcher]bool
}

func newChangeQueue() *changeQueue { return &changeQueue{watchers: map[*queueWatcher]bool{}} }

// add adds a key for every reader.
func (c *changeQueue) add(key controller.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.watchers {
		r.pending[key] = true
		select {
		case r.notify <- struct{}{}:
		default:
		}
	}
}

// stream returns a watch for controller.Source without initial objects.
func (c *changeQueue) stream(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &queueWatcher{changeQueue: c, cancel: cancel, events: make(chan watch.Event), notify: make(chan struct{}, 1), pending: map[controller.Request]bool{}}
	c.mu.Lock()
	c.watchers[r] = true
	c.mu.Unlock()
	go r.run(ctx)
	return r, nil
}

// queueWatcher is one watch of the queue. It implements watch.Interface.
type queueWatcher struct {
	changeQueue *changeQueue
	cancel      context.CancelFunc
	events      chan watch.Event
	// notify signals that pending is not empty. The lock of the queue guards pending.
	notify  chan struct{}
	pending map[controller.Request]bool
}

// ResultChan implements watch.Interface.
func (q *queueWatcher) ResultChan() <-chan watch.Event { return q.events }

// Stop implements watch.Interface.
func (q *queueWatcher) Stop() { q.cancel() }

func (q *queueWatcher) run(ctx context.Context) {
	defer close(q.events)
	defer q.cancel()
	defer func() {
		q.changeQueue.mu.Lock()
		defer q.changeQueue.mu.Unlock()
		delete(q.changeQueue.watchers, q)
	}()
	bookmark := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	if !q.send(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.notify:
		}
		q.changeQueue.mu.Lock()
		pending := q.pending
		q.pending = map[controller.Request]bool{}
		q.changeQueue.mu.Unlock()
		for key := range pending {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: key.Name, Annotations: map[string]string{logicalcluster.AnnotationKey: key.ClusterName.String()},
			}}
			if !q.send(ctx, watch.Event{Type: watch.Modified, Object: object}) {
				return
			}
		}
	}
}

func (q *queueWatcher) send(ctx context.Context, event watch.Event) bool {
	select {
	case q.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
