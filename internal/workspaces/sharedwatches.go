package workspaces

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// SharedWatches are watches of the metadata of objects of one server. Subscribers to the same resource share one watch.
type SharedWatches struct {
	client metadata.Interface

	mu      sync.Mutex
	running map[schema.GroupVersionResource]*sharedWatch
}

// Subscriber receives the changes of the objects of a resource.
type Subscriber struct {
	OnChange func(object *metav1.PartialObjectMetadata)
	// Resync is called when the watch may have missed changes.
	Resync func()
}

type sharedWatch struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu          sync.Mutex
	subscribers map[*Subscriber]bool
}

// NewSharedWatches returns watches of a server. No watch runs without a subscriber.
func NewSharedWatches(client metadata.Interface) *SharedWatches {
	return &SharedWatches{client: client, running: map[schema.GroupVersionResource]*sharedWatch{}}
}

// Subscribe passes changes to the subscriber until the returned function is called. If no other subscriber uses the watch, that function
// stops it and waits for its end.
func (w *SharedWatches) Subscribe(resource schema.GroupVersionResource, s *Subscriber) (unsubscribe func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared := w.running[resource]
	if shared == nil {
		shared = w.start(resource)
		w.running[resource] = shared
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.subscribers[s] = true
	return func() { w.unsubscribe(resource, shared, s) }
}

func (w *SharedWatches) start(resource schema.GroupVersionResource) *sharedWatch {
	ctx, cancel := context.WithCancel(context.Background())
	shared := &sharedWatch{cancel: cancel, ended: make(chan struct{}), subscribers: map[*Subscriber]bool{}}
	events := NewWatch(w.client.Resource(resource), "",
		func(object *metav1.PartialObjectMetadata) {
			shared.each(func(s *Subscriber) { s.OnChange(object) })
		},
		func() { shared.each(func(s *Subscriber) { s.Resync() }) })
	go func() {
		defer close(shared.ended)
		events.Run(ctx)
	}()
	return shared
}

func (w *SharedWatches) unsubscribe(resource schema.GroupVersionResource, shared *sharedWatch, s *Subscriber) {
	w.mu.Lock()
	shared.mu.Lock()
	delete(shared.subscribers, s)
	last := len(shared.subscribers) == 0
	shared.mu.Unlock()
	if last {
		delete(w.running, resource)
		shared.cancel()
	}
	w.mu.Unlock()
	if last {
		<-shared.ended
	}
}

func (s *sharedWatch) each(call func(*Subscriber)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subscriber := range s.subscribers {
		call(subscriber)
	}
}
