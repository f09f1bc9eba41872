package storage

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// source is storage that the test plays.
type source struct {
	storage.Interface
	events *watch.FakeWatcher
	now    uint64
}

func (s *source) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	list.(*corev1.ConfigMapList).ResourceVersion = "1"
	return nil
}

func (s *source) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return s.events, nil
}

func (s *source) CompactRevision() int64                     { return 0 }
func (s *source) RequestWatchProgress(context.Context) error { return nil }
func (s *source) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return s.now, nil
}
func (s *source) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (s *source) Versioner() storage.Versioner                        { return storage.APIObjectVersioner{} }

// forgettable is a stock watch cache above a source, at a time of its own.
type forgettable struct {
	t          *testing.T
	source     *source
	clock      *clocktesting.FakeClock
	forgetting *forgetting
	cacher     *cacher.Cacher
	resource   schema.GroupResource
	watches    []*followed
}

func startForgettable(t *testing.T) *forgettable {
	t.Helper()
	metrics.Register()
	f := &forgettable{t: t, source: &source{events: watch.NewFakeWithChanSize(100_000, false), now: 1}, clock: clocktesting.NewFakeClock(time.Now()),
		resource: schema.GroupResource{Group: t.Name(), Resource: "configmaps"}}
	newFunc := func() runtime.Object { return &corev1.ConfigMap{} }
	f.forgetting = newForgetting(f.source, newFunc, f.clock)
	layout := layout{prefix: "/configmaps"}
	var err error
	f.cacher, err = cacher.NewCacherFromConfig(cacher.Config{
		Storage: &prompt{listing: listing{f.forgetting}}, Versioner: storage.APIObjectVersioner{}, GroupResource: f.resource, ResourcePrefix: "/configmaps",
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		KeyFunc: layout.objectKey(func(obj runtime.Object) (string, error) {
			return storage.NamespaceKeyFunc("/configmaps/", obj)
		}),
		GetAttrsFunc: storage.DefaultNamespaceScopedAttr, NewFunc: newFunc, NewListFunc: func() runtime.Object { return &corev1.ConfigMapList{} },
		IndexerFuncs: storage.IndexerFuncs{indexField: clusterIndex},
		Codec:        serializer.NewCodecFactory(clientgoscheme.Scheme).LegacyCodec(corev1.SchemeGroupVersion), Clock: f.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.cacher.Stop)
	f.eventually("the watch cache is filled", f.cacher.Ready)
	return f
}

func (f *forgettable) eventually(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("waiting until %s: the watch cache has room for %d, and its history for %d events", what, f.room(), f.known())
		}
	}
}

// room is how many events the watch cache has room for, by its own account.
func (f *forgettable) room() int {
	value, err := testutil.GetGaugeMetricValue(metrics.WatchCacheCapacity.WithLabelValues(f.resource.Group, f.resource.Resource))
	if err != nil {
		f.t.Fatal(err)
	}
	return int(value)
}

// known is the same by the account of the history.
func (f *forgettable) known() int {
	f.forgetting.mu.Lock()
	defer f.forgetting.mu.Unlock()
	return len(f.forgetting.history.times)
}

func (f *forgettable) isFull() bool {
	f.forgetting.mu.Lock()
	defer f.forgetting.mu.Unlock()
	return f.forgetting.history.full()
}

// rush creates config maps and waits until the watch cache has seen them.
func (f *forgettable) rush(events int) {
	f.t.Helper()
	for range events {
		if f.source.now%10 == 0 && f.source.now > 10 { // no more at a time than watchers have room for
			f.eventually("the events are seen", f.hasSeenAll)
		}
		f.source.now++
		f.source.events.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("x", f.source.now), ResourceVersion: fmt.Sprint(f.source.now),
			Annotations: map[string]string{logicalcluster.AnnotationKey: "a"}}})
	}
	f.eventually("all events are seen", f.hasSeenAll)
}

// hasSeenAll tells whether the watch cache and all watches have seen the last event of the source.
func (f *forgettable) hasSeenAll() bool {
	for _, w := range f.watches {
		if w.at.Load() < f.source.now {
			return false
		}
	}
	key := fmt.Sprintf("/configmaps/a/default/x%d", f.source.now)
	return f.cacher.Get(f.t.Context(), key, storage.GetOptions{ResourceVersion: "0"}, &corev1.ConfigMap{}) == nil
}

// hasForgotten tells whether there is hardly any room left, which both sides agree on.
func (f *forgettable) hasForgotten() bool { return f.room() <= worthwhile && f.room() == f.known() }

// pass lets time pass until something holds.
func (f *forgettable) pass(step time.Duration, what string, done func() bool) {
	f.t.Helper()
	f.eventually(what, func() bool {
		f.clock.Step(step)
		time.Sleep(time.Millisecond)
		return done()
	})
}

// followed is a watch whose events are taken at once: watch caches end streams that are slow.
type followed struct {
	events chan watch.Event
	at     atomic.Uint64 // the resource version of the last event
}

// watch follows all config maps from a resource version on.
func (f *forgettable) watch(resourceVersion string) (*followed, error) {
	stream, err := f.cacher.Watch(f.t.Context(), "/configmaps/", storage.ListOptions{ResourceVersion: resourceVersion, Predicate: everything(), Recursive: true})
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(stream.Stop)
	w := &followed{events: make(chan watch.Event, 100_000)}
	if from, err := strconv.ParseUint(resourceVersion, 10, 64); err == nil {
		w.at.Store(from)
	}
	go func() {
		defer close(w.events)
		for event := range stream.ResultChan() {
			w.events <- event
			if version, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(event.Object); err == nil {
				w.at.Store(version)
			}
		}
	}()
	f.watches = append(f.watches, w)
	return w, nil
}

func everything() storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr}
}

func TestAWatchCacheForgetsARush(t *testing.T) {
	f := startForgettable(t)
	var streams []*followed
	for range 4 {
		stream, err := f.watch("1")
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	const events = 3000
	f.rush(events)
	if f.room() != 3200 || f.known() != 3200 {
		t.Fatalf("there is room for %d events, known is %d", f.room(), f.known())
	}
	f.pass(time.Second, "the watch cache is full", f.isFull)
	resumed, err := f.watch(strconv.Itoa(events + 1))
	if err != nil {
		t.Fatalf("a watch goes on where it was: %v", err)
	}
	f.pass(time.Second, "the watch cache has forgotten", f.hasForgotten)

	f.rush(1)
	for _, stream := range streams {
		for number := 2; number <= events+2; number++ {
			expect(t, stream, fmt.Sprint("x", number))
		}
	}
	expect(t, resumed, fmt.Sprint("x", events+2))
	late, err := f.cacher.Watch(t.Context(), "/configmaps/", storage.ListOptions{ResourceVersion: "2", Predicate: everything(), Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Stop()
	if event := <-late.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("a watch that has missed what was forgotten begins with %v", event)
	}
	list := &corev1.ConfigMapList{}
	if err := f.cacher.GetList(t.Context(), "/configmaps/", storage.ListOptions{ResourceVersion: "0", Predicate: everything(), Recursive: true}, list); err != nil || len(list.Items) != events+1 {
		t.Errorf("there are %d objects, %v", len(list.Items), err)
	}

	f.rush(events) // and once more, from where the first has left it
	f.pass(time.Second, "the watch cache has forgotten again", f.hasForgotten)
}

func TestWhatIsFreshIsNotForgotten(t *testing.T) {
	f := startForgettable(t)
	f.rush(2000)
	f.clock.Step(time.Second)
	for range 40 { // never quiet: what is fresh takes a quarter of the room
		f.clock.Step(5 * time.Second)
		from := strconv.FormatUint(f.source.now, 10)
		f.rush(60)
		stream, err := f.watch(from)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, stream, fmt.Sprint("x", f.source.now-59))
	}
	if room := f.room(); room < 15*60 || room != f.known() {
		t.Errorf("there is room for %d events, known is %d", room, f.known())
	}
}

// expect takes the next event of a stream, which is the creation of an object, besides bookmarks.
func expect(t *testing.T, stream *followed, name string) {
	t.Helper()
	for {
		select {
		case event := <-stream.events:
			if event.Type == watch.Bookmark {
				continue
			}
			if accessor, ok := event.Object.(metav1.Object); !ok || event.Type != watch.Added || accessor.GetName() != name {
				t.Fatalf("got %s of %v, want the creation of %s", event.Type, event.Object, name)
			}
			return
		case <-time.After(10 * time.Second):
			t.Fatalf("%s does not come", name)
		}
	}
}
