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
	mu      sync.Mutex
	readers map[*reader]bool
}

func newChangeQueue() *changeQueue { return &changeQueue{readers: map[*reader]bool{}} }

// tell adds a key for every reader.
func (n *changeQueue) tell(key controller.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.readers {
		r.pending[key] = true
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// stream returns a watch for controller.Input without initial objects.
func (n *changeQueue) stream(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{changeQueue: n, cancel: cancel, events: make(chan watch.Event), more: make(chan struct{}, 1), pending: map[controller.Key]bool{}}
	n.mu.Lock()
	n.readers[r] = true
	n.mu.Unlock()
	go r.run(ctx)
	return r, nil
}

// reader is one watch of the queue. It implements watch.Interface.
type reader struct {
	changeQueue *changeQueue
	cancel      context.CancelFunc
	events      chan watch.Event
	// more tells that something is pending, which the lock of the news guards.
	more    chan struct{}
	pending map[controller.Key]bool
}

// ResultChan implements watch.Interface.
func (r *reader) ResultChan() <-chan watch.Event { return r.events }

// Stop implements watch.Interface.
func (r *reader) Stop() { r.cancel() }

func (r *reader) run(ctx context.Context) {
	defer close(r.events)
	defer r.cancel()
	defer func() {
		r.changeQueue.mu.Lock()
		defer r.changeQueue.mu.Unlock()
		delete(r.changeQueue.readers, r)
	}()
	begin := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	if !r.send(ctx, watch.Event{Type: watch.Bookmark, Object: begin}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.more:
		}
		r.changeQueue.mu.Lock()
		pending := r.pending
		r.pending = map[controller.Key]bool{}
		r.changeQueue.mu.Unlock()
		for key := range pending {
			of := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: key.Name, Annotations: map[string]string{logicalcluster.AnnotationKey: key.Cluster.String()},
			}}
			if !r.send(ctx, watch.Event{Type: watch.Modified, Object: of}) {
				return
			}
		}
	}
}

func (r *reader) send(ctx context.Context, event watch.Event) bool {
	select {
	case r.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
