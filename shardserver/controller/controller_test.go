package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/storage/storagetest"
)

var configMaps = storagetest.ConfigMaps

// reconcileLog records calls of reconcilers, for tests to wait on.
type reconcileLog struct {
	mu     sync.Mutex
	counts map[string]int
}

func (l *reconcileLog) add(entry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[entry]++
}

func (l *reconcileLog) count(entry string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[entry]
}

func (l *reconcileLog) waitFor(t *testing.T, entry string) {
	t.Helper()
	storagetest.Eventually(t, fmt.Sprintf("%q", entry), func() bool { return l.count(entry) > 0 })
}

// start runs a manager until the test ends, or until stop is called, which waits for its end.
func start(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	manager, err := NewManager(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// newRecordingController returns a controller that records the logical cluster of its context and its key.
func newRecordingController(name string, recorded *reconcileLog) Controller {
	return Controller{
		Name:    name,
		Sources: []Source{{Resource: configMaps, MapFunc: RequestForObject}},
		Reconcile: func(ctx context.Context, req Request) (Result, error) {
			cluster, _ := logicalcluster.From(ctx)
			recorded.add(cluster.String() + " " + req.String())
			return Result{}, nil
		},
	}
}

func TestControllersShareOneWatch(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	storagetest.Create(t, store, "a", "before")
	counted := &storagetest.CountingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted

	var first, second reconcileLog
	stop := start(t, Config{Registry: registry, Controllers: []Controller{newRecordingController("first", &first), newRecordingController("second", &second)}})
	storagetest.Eventually(t, "a watch", func() bool { return counted.Watches.Load() > 0 }) // else the list contains both objects
	storagetest.Create(t, store, "b", "after")
	for _, seen := range []*reconcileLog{&first, &second} {
		seen.waitFor(t, "a a|default/before")
		seen.waitFor(t, "b b|default/after")
	}
	if n := counted.Watches.Load(); n != 1 {
		t.Errorf("%d watches of one resource, want 1", n)
	}
	if names := labelValues(t, "workqueue_adds_total", "name"); !names.HasAll("first", "second") {
		t.Errorf("metrics of queues are those of %v", sets.List(names))
	}
	stop()
	storagetest.Eventually(t, "the end of all goroutines of the controllers", func() bool { return len(controllerGoroutines()) == 0 })
}

// labelValues returns the values of a label of a metric that the shard exposes.
func labelValues(t *testing.T, metric, label string) sets.Set[string] {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := sets.New[string]()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, pair := range m.GetLabel() {
				if family.GetName() == metric && pair.GetName() == label {
					values.Insert(pair.GetValue())
				}
			}
		}
	}
	return values
}

// controllerGoroutines returns the stacks of goroutines that the controllers or their queues started. It excludes those of the
// storage, whose number varies.
func controllerGoroutines() []string {
	buffer := make([]byte, 16<<20)
	var stacks []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "shardserver/controller.(*") || strings.Contains(stack, "shardserver/informer.(*") ||
			strings.Contains(stack, "controller-runtime/pkg/internal/controller") || strings.Contains(stack, "client-go/util/workqueue") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func TestManagerStopsWhileWaitingForResources(t *testing.T) {
	before := goleak.IgnoreCurrent()
	stop := start(t, Config{Registry: storage.NewRegistry(storage.Locality{}), Controllers: []Controller{newRecordingController("idle", &reconcileLog{})}})
	storagetest.Eventually(t, "the controllers", func() bool { return len(controllerGoroutines()) > defaultMaxConcurrentReconciles })
	stop()
	goleak.VerifyNone(t, before)
}

func TestExpiredWatchIsRelisted(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	counted := &storagetest.CountingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted
	storagetest.Create(t, store, "a", "x")
	var seen reconcileLog
	start(t, Config{Registry: registry, Controllers: []Controller{newRecordingController("one", &seen)}})
	seen.waitFor(t, "a a|default/x")
	storagetest.Eventually(t, "the watch", func() bool { return counted.Watches.Load() == 1 })
	counted.StopAll(true)
	storagetest.Eventually(t, "the replay", func() bool { return seen.count("a a|default/x") >= 2 })
	storagetest.Create(t, store, "a", "y")
	seen.waitFor(t, "a a|default/y")
}

func TestEndedWatchIsResumed(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	counted := &storagetest.CountingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted
	storagetest.Create(t, store, "a", "x")
	var seen reconcileLog
	start(t, Config{Registry: registry, Controllers: []Controller{newRecordingController("one", &seen)}})
	seen.waitFor(t, "a a|default/x")
	storagetest.Eventually(t, "the watch", func() bool { return counted.Watches.Load() == 1 })
	counted.StopAll(false)
	storagetest.Create(t, store, "a", "y") // possibly while there is no watch
	seen.waitFor(t, "a a|default/y")
	if n := seen.count("a a|default/x"); n != 1 {
		t.Errorf("an unchanged object was reconciled %d times, want once", n)
	}
	before := seen.count("a a|default/y")
	counted.StopAll(false)
	storagetest.Delete(t, store, "a", "y")
	storagetest.Eventually(t, "the deletion", func() bool { return seen.count("a a|default/y") > before })
}

func TestMissedDeletionReplaysOtherSources(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	// The same storage under a second name represents another resource.
	others := schema.GroupResource{Resource: "others"}
	counted := &storagetest.CountingStore{Store: store}
	registry.Add(&storage.Resource{GVR: others.WithVersion("v1"), Namespaced: true, Store: counted})
	storagetest.Create(t, store, "a", "x")
	var seen reconcileLog
	c := newRecordingController("one", &seen)
	c.Sources = append(c.Sources, Source{Resource: others, MapFunc: func(watch.Event) []Request { return nil }})
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	seen.waitFor(t, "a a|default/x")
	storagetest.Eventually(t, "the second watch", func() bool { return counted.Watches.Load() == 1 })
	counted.StopAll(true)
	storagetest.Eventually(t, "the replay of the other source", func() bool { return seen.count("a a|default/x") >= 2 })
}

func TestRequeueByOutcome(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	for _, name := range []string{"fails", "panics", "waits", "gone"} {
		storagetest.Create(t, store, "a", name)
	}
	var seen reconcileLog
	c := Controller{
		Name:    "outcomes",
		Sources: []Source{{Resource: configMaps, MapFunc: RequestForObject}},
		Reconcile: func(_ context.Context, req Request) (Result, error) {
			seen.add(req.Name)
			switch {
			case seen.count(req.Name) > 2:
				return Result{}, nil
			case req.Name == "fails":
				return Result{}, errors.New("not yet")
			case req.Name == "panics":
				panic("not yet")
			case req.Name == "waits":
				return Result{RequeueAfter: time.Millisecond}, nil
			}
			return Result{}, nil
		},
	}
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	for _, name := range []string{"fails", "panics", "waits"} {
		storagetest.Eventually(t, name+" is requeued twice", func() bool { return seen.count(name) == 3 })
	}
	seen.waitFor(t, "gone")
	before := seen.count("gone")
	storagetest.Delete(t, store, "a", "gone")
	storagetest.Eventually(t, "the deletion", func() bool { return seen.count("gone") > before })
}

func TestResourceInstalledAfterStart(t *testing.T) {
	full, store := storagetest.NewRegistry(t)
	storagetest.Create(t, store, "a", "x")
	registry := storage.NewRegistry(storage.Locality{})
	var seen reconcileLog
	start(t, Config{Registry: registry, Controllers: []Controller{newRecordingController("one", &seen)}})
	resource, err := full.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	registry.Add(resource)
	seen.waitFor(t, "a a|default/x")
}

func TestNewManagerRejectsInvalidControllers(t *testing.T) {
	valid := newRecordingController("x", &reconcileLog{})
	for name, tc := range map[string][]Controller{
		"duplicate names": {valid, valid},
		"no name":         {{Sources: valid.Sources, Reconcile: valid.Reconcile}},
		"no sources":      {{Name: "x", Reconcile: valid.Reconcile}},
		"no reconciler":   {{Name: "x", Sources: valid.Sources}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewManager(Config{Registry: storage.NewRegistry(storage.Locality{}), Controllers: tc}); err == nil {
				t.Error("want an error")
			}
		})
	}
}

func TestReconcilingWaitsForAllSources(t *testing.T) {
	registry, store := storagetest.NewRegistry(t)
	storagetest.Create(t, store, "a", "x")
	late := watch.NewFakeWithChanSize(10, false)
	var seen reconcileLog
	c := newRecordingController("one", &seen)
	var mapped atomic.Bool
	c.Sources[0].MapFunc = func(event watch.Event) []Request {
		defer mapped.Store(true)
		return RequestForObject(event)
	}
	c.Sources = append(c.Sources, Source{
		Resource: schema.GroupResource{Resource: "late"},
		MapFunc:  RequestForObject,
		WatchFunc: func(ctx context.Context) (watch.Interface, error) {
			context.AfterFunc(ctx, late.Stop)
			return late, nil
		},
	})
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	object := func(annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "y", Annotations: annotations}}
	}
	storagetest.Eventually(t, "the events of the first source", mapped.Load)
	if seen.count("a a|default/x") > 0 {
		t.Error("reconciling started before the second source had synced")
	}
	late.Add(object(map[string]string{logicalcluster.AnnotationKey: "a"}))
	late.Action(watch.Bookmark, object(nil))
	seen.waitFor(t, "a a|default/x")
}
