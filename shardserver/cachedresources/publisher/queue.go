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
func (n *changeQueue) add(key controller.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.watchers {
		r.pending[key] = true
		select {
		case r.notify <- struct{}{}:
		default:
		}
	}
}

// stream returns a watch for controller.Source without initial objects.
func (n *changeQueue) stream(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &queueWatcher{changeQueue: n, cancel: cancel, events: make(chan watch.Event), notify: make(chan struct{}, 1), pending: map[controller.Request]bool{}}
	n.mu.Lock()
	n.watchers[r] = true
	n.mu.Unlock()
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
func (r *queueWatcher) ResultChan() <-chan watch.Event { return r.events }

// Stop implements watch.Interface.
func (r *queueWatcher) Stop() { r.cancel() }

func (r *queueWatcher) run(ctx context.Context) {
	defer close(r.events)
	defer r.cancel()
	defer func() {
		r.changeQueue.mu.Lock()
		defer r.changeQueue.mu.Unlock()
		delete(r.changeQueue.watchers, r)
	}()
	bookmark := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	if !r.send(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.notify:
		}
		r.changeQueue.mu.Lock()
		pending := r.pending
		r.pending = map[controller.Request]bool{}
		r.changeQueue.mu.Unlock()
		for key := range pending {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: key.Name, Annotations: map[string]string{logicalcluster.AnnotationKey: key.ClusterName.String()},
			}}
			if !r.send(ctx, watch.Event{Type: watch.Modified, Object: object}) {
				return
			}
		}
	}
}

func (r *queueWatcher) send(ctx context.Context, event watch.Event) bool {
	select {
	case r.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
