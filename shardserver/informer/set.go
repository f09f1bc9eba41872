package informer

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// uncached are resources without a watch cache, which a Set leaves out.
var uncached = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// IsCached reports whether a resource has a watch cache, hence an informer in a Set.
func IsCached(resource *storage.Resource) bool { return !uncached[resource.GVR.GroupResource()] }

// NewHandlerFunc returns the event handler of one storage.
type NewHandlerFunc func(*storage.Resource) EventHandler[metav1.Object]

// Set runs one informer for each storage of a registry, compiled in or custom, while the storages come and go. Handlers
// of different storages are called concurrently.
type Set struct {
	registry    *storage.Registry
	newHandlers []NewHandlerFunc

	mu      sync.Mutex
	members map[*storage.Resource]*member
}

// member is the informer of one storage.
type member struct {
	informer *Informer[metav1.Object]
	cancel   context.CancelFunc
	done     chan struct{}
}

// NewSet returns a set whose informers have one handler of each function.
func NewSet(registry *storage.Registry, newHandlers ...NewHandlerFunc) *Set {
	return &Set{registry: registry, newHandlers: newHandlers, members: map[*storage.Resource]*member{}}
}

// Run delivers events until the context ends. It must be called once.
func (s *Set) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.registry.Changed()
		s.sync(ctx, s.storages())
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	s.sync(ctx, nil)
}

// HasSynced reports whether the informers of all storages of the registry have synced.
func (s *Set) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource := range s.storages() {
		if m := s.members[resource]; m == nil || !m.informer.HasSynced() {
			return false
		}
	}
	return true
}

func (s *Set) storages() map[*storage.Resource]bool {
	storages := map[*storage.Resource]bool{}
	for _, resource := range s.registry.AllStorages() {
		if IsCached(resource) {
			storages[resource] = true
		}
	}
	return storages
}

// sync stops and starts informers. One that replaces another, over the same objects, starts when the other one has
// stopped, so that the handlers do not drop what the new one delivers.
func (s *Set) sync(ctx context.Context, desired map[*storage.Resource]bool) {
	for _, stopped := range s.removeExcept(desired) {
		<-stopped.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource := range desired {
		if s.members[resource] == nil {
			s.members[resource] = s.start(ctx, resource)
		}
	}
}

func (s *Set) removeExcept(desired map[*storage.Resource]bool) (removed []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, m := range s.members {
		if !desired[resource] {
			m.cancel()
			delete(s.members, resource)
			removed = append(removed, m)
		}
	}
	return removed
}

func (s *Set) start(ctx context.Context, resource *storage.Resource) *member {
	ctx, cancel := context.WithCancel(ctx)
	m := &member{cancel: cancel, done: make(chan struct{})}
	m.informer = New[metav1.Object](resource.GVR.GroupResource(), func(ctx context.Context) (watch.Interface, error) {
		return storage.WatchAll(ctx, resource)
	})
	for _, newHandler := range s.newHandlers {
		m.informer.AddEventHandler(newHandler(resource))
	}
	go func() {
		defer close(m.done)
		m.informer.Run(ctx)
	}()
	return m
}
