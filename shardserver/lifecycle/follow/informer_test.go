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

// singleObjectStore is a storage with one config map, of which nothing is ever told.
type singleObjectStore struct{ storage.Store }

func (singleObjectStore) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []core.ConfigMap{{}}}, nil
}

func (singleObjectStore) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	fake := watch.NewFake()
	context.AfterFunc(ctx, fake.Stop)
	return fake, nil
}

// blockingHandler takes its time with what the first storage tells.
type blockingHandler struct {
	first   *storage.Resource
	started chan struct{} // closed when it has begun
	release chan struct{}

	mu    sync.Mutex
	calls []string
}

func (s *blockingHandler) record(resource *storage.Resource, call string) {
	prefix := "second "
	if resource == s.first {
		prefix = "first "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, prefix+call)
}

func (s *blockingHandler) OnListStart(resource *storage.Resource)      { s.record(resource, "listing") }
func (s *blockingHandler) OnListDone(*storage.Resource)                {}
func (s *blockingHandler) OnStorageRemoved(resource *storage.Resource) { s.record(resource, "dropped") }

func (s *blockingHandler) OnEvent(resource *storage.Resource, _ watch.EventType, _ metav1.Object) {
	s.record(resource, "object")
	if resource == s.first {
		close(s.started)
		<-s.release
	}
}

func (s *blockingHandler) waitForCalls(t *testing.T, want []string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		got := slices.Clone(s.calls)
		s.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) || len(got) > len(want) {
			t.Fatalf("told was %q, want %q", got, want)
		}
	}
}

func TestReplacedStorage(t *testing.T) {
	resource := func() *storage.Resource {
		return &storage.Resource{GVR: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "r"}, Prefix: "/g/r/x", Store: singleObjectStore{}}
	}
	registry, first, second := storage.NewRegistry(), resource(), resource()
	handler := &blockingHandler{first: first, started: make(chan struct{}), release: make(chan struct{})}
	informer := New(registry, handler)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.Run(ctx) })

	registry.AddCustom(first)
	<-handler.started
	registry.AddCustom(second)
	for watched := false; !watched; time.Sleep(time.Millisecond) {
		informer.mu.Lock()
		watched = informer.watches[second] != nil
		informer.mu.Unlock()
	}
	handler.waitForCalls(t, []string{"first listing", "first object"})
	close(handler.release)
	handler.waitForCalls(t, []string{"first listing", "first object", "first dropped", "second listing", "second object"})
	cancel()
	running.Wait()
	if len(informer.stopping) > 0 {
		t.Errorf("%d ends are held", len(informer.stopping))
	}
}
