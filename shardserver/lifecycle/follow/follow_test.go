package follow

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// oneObject is a storage with one config map, of which nothing is ever told.
type oneObject struct{ storage.Store }

func (oneObject) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []core.ConfigMap{{}}}, nil
}

func (oneObject) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	silence := watch.NewFake()
	context.AfterFunc(ctx, silence.Stop)
	return silence, nil
}

// slow takes its time with what the first storage tells.
type slow struct {
	first   *storage.Resource
	busy    chan struct{} // closed when it has begun
	release chan struct{}

	mu   sync.Mutex
	told []string
}

func (s *slow) tell(resource *storage.Resource, what string) {
	of := "second "
	if resource == s.first {
		of = "first "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, of+what)
}

func (s *slow) Listing(resource *storage.Resource) { s.tell(resource, "listing") }
func (s *slow) Listed(*storage.Resource)           {}
func (s *slow) Dropped(resource *storage.Resource) { s.tell(resource, "dropped") }

func (s *slow) Observe(resource *storage.Resource, _ watch.EventType, _ metav1.Object) {
	s.tell(resource, "object")
	if resource == s.first {
		close(s.busy)
		<-s.release
	}
}

func (s *slow) until(t *testing.T, told []string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		got := slices.Clone(s.told)
		s.mu.Unlock()
		if slices.Equal(got, told) {
			return
		}
		if time.Now().After(end) || len(got) > len(told) {
			t.Fatalf("told was %q, want %q", got, told)
		}
	}
}

func TestAStorageThatTakesThePlaceOfAnotherIsToldOfAfterTheOthersEnd(t *testing.T) {
	resource := func() *storage.Resource {
		return &storage.Resource{GVR: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "r"}, Prefix: "/g/r/x", Store: oneObject{}}
	}
	registry, first, second := storage.NewRegistry(), resource(), resource()
	listener := &slow{first: first, busy: make(chan struct{}), release: make(chan struct{})}
	follower := New(registry, listener)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { follower.Run(ctx) })

	registry.AddCustom(first)
	<-listener.busy
	registry.AddCustom(second)
	for watched := false; !watched; time.Sleep(time.Millisecond) {
		follower.mu.Lock()
		watched = follower.following[second] != nil
		follower.mu.Unlock()
	}
	listener.until(t, []string{"first listing", "first object"})
	close(listener.release)
	listener.until(t, []string{"first listing", "first object", "first dropped", "second listing", "second object"})
	end()
	running.Wait()
	if len(follower.ending) > 0 {
		t.Errorf("%d ends are held", len(follower.ending))
	}
}
