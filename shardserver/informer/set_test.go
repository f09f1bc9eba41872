package informer_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/storage/storagetest"
)

// singleObjectStore is a store with one config map that never changes.
type singleObjectStore struct{ storage.Store }

func (singleObjectStore) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &core.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []core.ConfigMap{{}}}, nil
}

func (singleObjectStore) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	fake := watch.NewFake()
	context.AfterFunc(ctx, fake.Stop)
	return fake, nil
}

func newStorage(resource string) *storage.Resource {
	gvr := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: resource}
	return &storage.Resource{GVR: gvr, Prefix: "/" + resource, Store: singleObjectStore{}}
}

// setRecorder records the events of storages. The handler of the first one blocks until it is replaced.
type setRecorder struct {
	first   *storage.Resource
	started chan struct{}

	mu    sync.Mutex
	calls []string
}

func (r *setRecorder) newHandler(resource *storage.Resource) informer.EventHandler[metav1.Object] {
	prefix := "second "
	if resource == r.first {
		prefix = "first "
	}
	record := func(call string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, prefix+call)
	}
	return informer.EventHandler[metav1.Object]{
		OnReplace: func(ctx context.Context, _ []metav1.Object, _ string) error {
			if resource == r.first {
				close(r.started)
				<-ctx.Done()
			}
			record("replace")
			return nil
		},
		OnStop: func() { record("stop") },
	}
}

func (r *setRecorder) hasCalls(calls ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Equal(r.calls, calls)
}

func TestSetReplacesStorage(t *testing.T) {
	registry, first, second := storage.NewRegistry(storage.Locality{}), newStorage("r"), newStorage("r")
	recorder := &setRecorder{first: first, started: make(chan struct{})}
	set := informer.NewSet(registry, recorder.newHandler)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { set.Run(ctx) })
	registry.Add(newStorage("events")) // which has no watch cache
	registry.AddCustom(first)
	<-recorder.started
	if set.HasSynced() {
		t.Error("synced before the handler has returned")
	}
	registry.AddCustom(second)
	storagetest.Eventually(t, "the end of the first storage before the second one starts", func() bool {
		return recorder.hasCalls("first replace", "first stop", "second replace") && set.HasSynced()
	})
	registry.RemoveCustom(second.Prefix)
	storagetest.Eventually(t, "the end of the second storage", func() bool {
		return recorder.hasCalls("first replace", "first stop", "second replace", "second stop")
	})
	registry.AddCustom(second)
	storagetest.Eventually(t, "a storage that came back", set.HasSynced)
	cancel()
	running.Wait()
	if !recorder.hasCalls("first replace", "first stop", "second replace", "second stop", "second replace", "second stop") {
		t.Errorf("got %v", recorder.calls)
	}
}
