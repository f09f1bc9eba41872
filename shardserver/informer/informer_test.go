package informer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	configmapstorage "k8s.io/kubernetes/pkg/registry/core/configmap/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/storage/storagetest"
)

// recorder records the calls of its handler.
type recorder struct {
	mu    sync.Mutex
	calls []string
	// fail is returned once by the next call for an added object.
	fail error
}

func (r *recorder) record(call string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	return nil
}

func describe(object metav1.Object) string {
	return logicalcluster.Of(object).String() + "/" + object.GetName()
}

func (r *recorder) handler() informer.EventHandler[metav1.Object] {
	return informer.EventHandler[metav1.Object]{
		OnReplace: func(_ context.Context, objects []metav1.Object, resourceVersion string) error {
			call := "replace"
			for _, object := range objects {
				call += " " + describe(object)
			}
			if resourceVersion == "" {
				call += " without resource version"
			}
			return r.record(call)
		},
		OnAdd: func(_ context.Context, object metav1.Object) error {
			_ = r.record("add " + describe(object))
			r.mu.Lock()
			defer r.mu.Unlock()
			err := r.fail
			r.fail = nil
			return err
		},
		OnUpdate:     func(_ context.Context, object metav1.Object) error { return r.record("update " + describe(object)) },
		OnDelete:     func(_ context.Context, object metav1.Object) error { return r.record("delete " + describe(object)) },
		OnDisconnect: func() { _ = r.record("disconnect") },
	}
}

func (r *recorder) expect(t *testing.T, calls ...string) {
	t.Helper()
	storagetest.Eventually(t, "the expected calls", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(r.calls, calls)
	})
}

// env is an informer of config maps that runs until the test ends.
type env struct {
	store         *configmapstorage.REST
	countingStore *storagetest.CountingStore
	recorder      *recorder
	stop          func()
}

func startInformer(t *testing.T, existing ...string) *env {
	t.Helper()
	registry, store := storagetest.NewRegistry(t)
	resource, err := registry.Get(storagetest.ConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{store: store, countingStore: &storagetest.CountingStore{Store: store}, recorder: &recorder{}}
	for _, cluster := range existing {
		storagetest.Create(t, store, cluster, "x")
	}
	storagetest.WaitForCache(t, registry, store)
	resource.Store = e.countingStore
	before := goleak.IgnoreCurrent()
	i := informer.New[metav1.Object](storagetest.ConfigMaps, storage.NewReader[*core.ConfigMap](registry, storagetest.ConfigMaps).WatchAll)
	i.AddEventHandler(informer.EventHandler[metav1.Object]{}) // a handler without functions
	i.AddEventHandler(e.recorder.handler())
	if i.HasSynced() {
		t.Error("HasSynced before Run")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { i.Run(ctx) })
	e.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		goleak.VerifyNone(t, before,
			goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2")) // a timer of each list
	})
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			e.recorder.mu.Lock()
			defer e.recorder.mu.Unlock()
			t.Logf("calls: %q", e.recorder.calls)
		}
	})
	if err := i.WaitForSync(t.Context()); err != nil || !i.HasSynced() {
		t.Fatal("not synced", err)
	}
	storagetest.Eventually(t, "the watch", func() bool { return e.countingStore.Watches.Load() == 1 })
	return e
}

func TestInformerDeliversInitialObjectsAndChanges(t *testing.T) {
	e := startInformer(t, "a", "b")
	e.recorder.expect(t, "replace a/x b/x")
	storagetest.Create(t, e.store, "c", "y")
	storagetest.Delete(t, e.store, "a", "x")
	e.recorder.expect(t, "replace a/x b/x", "add c/y", "delete a/x")
	e.stop()
	e.recorder.expect(t, "replace a/x b/x", "add c/y", "delete a/x", "disconnect")
}

func TestInformerResumesEndedWatch(t *testing.T) {
	e := startInformer(t, "a")
	e.countingStore.StopAll(false)
	storagetest.Create(t, e.store, "b", "x") // possibly while there is no watch
	e.recorder.expect(t, "replace a/x", "add b/x")
}

func TestInformerRelistsAfterMissedEvents(t *testing.T) {
	e := startInformer(t, "a", "b")
	e.countingStore.StopAll(true)
	e.recorder.expect(t, "replace a/x b/x", "disconnect", "replace a/x b/x")
}

func TestInformerRelistsAfterHandlerError(t *testing.T) {
	e := startInformer(t, "a")
	e.recorder.mu.Lock()
	e.recorder.fail = errors.New("failed")
	e.recorder.mu.Unlock()
	storagetest.Create(t, e.store, "b", "x")
	e.recorder.expect(t, "replace a/x", "add b/x", "disconnect", "replace a/x b/x")
}

func TestList(t *testing.T) {
	object := func(name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	errorStatus := apierrors.NewServiceUnavailable("refused").Status()
	for name, tc := range map[string]struct {
		events []watch.Event
		want   int // -1 for an error
	}{
		"objects up to the bookmark": {[]watch.Event{{Type: watch.Added, Object: object("a")}, {Type: watch.Bookmark, Object: object("")}}, 1},
		"an error":                   {[]watch.Event{{Type: watch.Added, Object: object("a")}, {Type: watch.Error, Object: &errorStatus}}, -1},
		"no bookmark":                {[]watch.Event{{Type: watch.Added, Object: object("a")}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			stream := watch.NewFakeWithChanSize(len(tc.events), false)
			for _, event := range tc.events {
				stream.Action(event.Type, event.Object)
			}
			if tc.want < 0 {
				stream.Stop()
			}
			objects, err := informer.List[metav1.Object](t.Context(), func(context.Context) (watch.Interface, error) { return stream, nil })
			if (err != nil) != (tc.want < 0) || (err == nil && len(objects) != tc.want) {
				t.Errorf("got %d objects, %v", len(objects), err)
			}
			if !stream.IsStopped() {
				t.Error("the watch was not stopped")
			}
		})
	}
}
