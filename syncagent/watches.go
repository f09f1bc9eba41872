package syncagent

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/internal/workspaces"
)

// watches are the watches of related objects on one side, at one endpoint or on the service cluster. Subscribers to the same resource
// share one watch.
type watches struct {
	client metadata.Interface

	mu      sync.Mutex
	running map[schema.GroupVersionResource]*sharedWatch
}

// subscriber receives the changes of related objects.
type subscriber struct {
	onChange func(object *metav1.PartialObjectMetadata)
	// resync is called when the watch may have missed changes.
	resync func()
}

type sharedWatch struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu          sync.Mutex
	subscribers map[*subscriber]bool
}

func newWatches(client metadata.Interface) *watches {
	return &watches{client: client, running: map[schema.GroupVersionResource]*sharedWatch{}}
}

// subscribe passes changes to the subscriber until the returned function is called. If no other subscriber uses the watch, that function
// stops it and waits for its end.
func (w *watches) subscribe(resource schema.GroupVersionResource, s *subscriber) (unsubscribe func()) {
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

func (w *watches) start(resource schema.GroupVersionResource) *sharedWatch {
	ctx, cancel := context.WithCancel(context.Background())
	shared := &sharedWatch{cancel: cancel, ended: make(chan struct{}), subscribers: map[*subscriber]bool{}}
	events := workspaces.NewWatch(w.client.Resource(resource), "",
		func(object *metav1.PartialObjectMetadata) {
			shared.each(func(s *subscriber) { s.onChange(object) })
		},
		func() { shared.each(func(s *subscriber) { s.resync() }) })
	go func() {
		defer close(shared.ended)
		events.Run(ctx)
	}()
	return shared
}

func (w *watches) unsubscribe(resource schema.GroupVersionResource, shared *sharedWatch, s *subscriber) {
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

func (s *sharedWatch) each(call func(*subscriber)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subscriber := range s.subscribers {
		call(subscriber)
	}
}
