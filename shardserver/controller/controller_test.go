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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	configmapstorage "k8s.io/kubernetes/pkg/registry/core/configmap/storage"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const deadline = 20 * time.Second

var configMaps = schema.GroupResource{Resource: "configmaps"}

// newRegistry serves config maps from an embedded etcd, the way the shard stores them.
func newRegistry(t *testing.T) (*storage.Registry, *configmapstorage.REST) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: t.TempDir(), UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)

	config := storagebackend.NewDefaultConfig("/registry", legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion))
	config.Transport.ServerList = []string{server.Endpoint}
	config.Transport.TrustedCAFile, config.Transport.CertFile, config.Transport.KeyFile = server.CAFile, server.CertFile, server.KeyFile

	store, err := configmapstorage.NewREST(generic.RESTOptions{
		StorageConfig:  config.ForResource(configMaps),
		Decorator:      storage.WithCache(),
		ResourcePrefix: "core/configmaps",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	registry := storage.NewRegistry()
	registry.Add(&storage.Resource{
		GVR:        configMaps.WithVersion("v1"),
		Kind:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Namespaced: true, Store: store, Deletable: true,
	})
	// Until the storage has found out what etcd can do, watches end with an error at once. Tests that count watches must
	// not count these.
	eventually(t, "a watch that is not refused", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resource, err := registry.Get(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := storage.WatchAll(ctx, resource)
		if err != nil {
			return false
		}
		defer stream.Stop()
		return (<-stream.ResultChan()).Type == watch.Bookmark
	})
	return registry, store
}

func create(t *testing.T, store *configmapstorage.REST, cluster, name string) {
	t.Helper()
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), "default")
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if _, err := store.Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, store *configmapstorage.REST, cluster, name string) {
	t.Helper()
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), "default")
	if _, _, err := store.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// log is what reconcilers saw, for tests to wait on.
type log struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *log) add(entry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[entry]++
}

func (l *log) count(entry string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[entry]
}

func (l *log) waitFor(t *testing.T, entry string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q", entry), func() bool { return l.count(entry) > 0 })
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !reached() {
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", deadline, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// start runs a manager until the test ends, or until the returned function is called, which waits for its end.
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

// recording is a controller that writes down the cluster of its context and its key.
func recording(name string, into *log) Controller {
	return Controller{
		Name:   name,
		Inputs: []Input{{Resource: configMaps, Keys: ObjectKey}},
		Reconcile: func(ctx context.Context, key Key) (Result, error) {
			cluster, _ := logicalcluster.From(ctx)
			into.add(cluster.String() + " " + key.String())
			return Result{}, nil
		},
	}
}

func TestControllersSeeEveryClusterFromOneWatchAndLeaveNothingRunning(t *testing.T) {
	registry, store := newRegistry(t)
	create(t, store, "a", "before")
	counted := &countingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted

	var first, second log
	stop := start(t, Config{Registry: registry, Controllers: []Controller{recording("first", &first), recording("second", &second)}})
	create(t, store, "b", "after")
	for _, seen := range []*log{&first, &second} {
		seen.waitFor(t, "a a|default/before")
		seen.waitFor(t, "b b|default/after")
	}
	if n := counted.watches.Load(); n != 1 {
		t.Errorf("%d watches of one resource, want 1", n)
	}
	stop()
	eventually(t, "the end of all goroutines of the controllers", func() bool { return len(ownGoroutines()) == 0 })
}

// ownGoroutines returns the stacks of goroutines that the controllers or their queues started. The storage below runs
// on, with goroutines that come and go, so "none but those of before" would be no test.
func ownGoroutines() []string {
	buffer := make([]byte, 16<<20)
	var own []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "shardserver/controller.(*") || strings.Contains(stack, "client-go/util/workqueue") {
			own = append(own, stack)
		}
	}
	return own
}

func TestAManagerThatWaitsForItsResourcesLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	stop := start(t, Config{Registry: storage.NewRegistry(), Controllers: []Controller{recording("idle", &log{})}})
	eventually(t, "the controllers", func() bool { return len(ownGoroutines()) > defaultWorkers })
	stop()
	goleak.VerifyNone(t, before)
}

// countingStore counts the watches and can end them.
type countingStore struct {
	storage.Store
	watches atomic.Int64
	mu      sync.Mutex
	open    []watch.Interface
	expired bool
}

func (s *countingStore) Watch(ctx context.Context, opts *internalversion.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	expired := s.expired
	s.expired = false
	s.mu.Unlock()
	if expired {
		return nil, apierrors.NewResourceExpired("changes are no longer known")
	}
	stream, err := s.Store.Watch(ctx, opts)
	if err == nil {
		s.watches.Add(1)
		s.mu.Lock()
		s.open = append(s.open, stream)
		s.mu.Unlock()
	}
	return stream, err
}

// endAll ends all watches, as the watch cache does with slow ones. They may go on, or find that what has changed since
// is no longer known.
func (s *countingStore) endAll(expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = expired
	for _, stream := range s.open {
		stream.Stop()
	}
	s.open = nil
}

func TestABrokenWatchStartsAgainAndReplaysWhatExists(t *testing.T) {
	registry, store := newRegistry(t)
	counted := &countingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted
	create(t, store, "a", "x")
	var seen log
	start(t, Config{Registry: registry, Controllers: []Controller{recording("one", &seen)}})
	seen.waitFor(t, "a a|default/x")
	eventually(t, "the watch", func() bool { return counted.watches.Load() == 1 })
	counted.endAll(true)
	eventually(t, "the replay", func() bool { return seen.count("a a|default/x") >= 2 })
	create(t, store, "a", "y")
	seen.waitFor(t, "a a|default/y")
}

func TestAWatchThatWasEndedGoesOnWhereItWas(t *testing.T) {
	registry, store := newRegistry(t)
	counted := &countingStore{Store: store}
	resource, err := registry.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	resource.Store = counted
	create(t, store, "a", "x")
	var seen log
	start(t, Config{Registry: registry, Controllers: []Controller{recording("one", &seen)}})
	seen.waitFor(t, "a a|default/x")
	eventually(t, "the watch", func() bool { return counted.watches.Load() == 1 })
	counted.endAll(false)
	create(t, store, "a", "y") // at a time when there may be no watch
	seen.waitFor(t, "a a|default/y")
	if n := seen.count("a a|default/x"); n != 1 {
		t.Errorf("what was known already was looked at %d times, want once", n)
	}
	before := seen.count("a a|default/y")
	counted.endAll(false)
	remove(t, store, "a", "y")
	eventually(t, "the deletion", func() bool { return seen.count("a a|default/y") > before })
}

func TestADeletionMissedBetweenTwoWatchesReplaysTheOtherInputs(t *testing.T) {
	registry, store := newRegistry(t)
	// The same storage under a second name stands for another resource.
	others := schema.GroupResource{Resource: "others"}
	counted := &countingStore{Store: store}
	registry.Add(&storage.Resource{GVR: others.WithVersion("v1"), Namespaced: true, Store: counted})
	create(t, store, "a", "x")
	var seen log
	c := recording("one", &seen)
	c.Inputs = append(c.Inputs, Input{Resource: others, Keys: func(watch.Event) []Key { return nil }})
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	seen.waitFor(t, "a a|default/x")
	eventually(t, "the second watch", func() bool { return counted.watches.Load() == 1 })
	counted.endAll(true)
	eventually(t, "the replay of the unbroken input", func() bool { return seen.count("a a|default/x") >= 2 })
}

func TestOutcomesDecideWhenAKeyComesBack(t *testing.T) {
	registry, store := newRegistry(t)
	for _, name := range []string{"fails", "panics", "waits", "gone"} {
		create(t, store, "a", name)
	}
	var seen log
	c := Controller{
		Name:   "outcomes",
		Inputs: []Input{{Resource: configMaps, Keys: ObjectKey}},
		Reconcile: func(_ context.Context, key Key) (Result, error) {
			seen.add(key.Name)
			switch {
			case seen.count(key.Name) > 2:
				return Result{}, nil
			case key.Name == "fails":
				return Result{}, errors.New("not yet")
			case key.Name == "panics":
				panic("not yet")
			case key.Name == "waits":
				return Result{RequeueAfter: time.Millisecond}, nil
			}
			return Result{}, nil
		},
	}
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	for _, name := range []string{"fails", "panics", "waits"} {
		eventually(t, name+" coming back twice", func() bool { return seen.count(name) == 3 })
	}
	seen.waitFor(t, "gone")
	known := seen.count("gone")
	remove(t, store, "a", "gone")
	eventually(t, "the deletion", func() bool { return seen.count("gone") > known })
}

func TestAResourceThatIsInstalledLateIsFollowed(t *testing.T) {
	full, store := newRegistry(t)
	create(t, store, "a", "x")
	registry := storage.NewRegistry()
	var seen log
	start(t, Config{Registry: registry, Controllers: []Controller{recording("one", &seen)}})
	resource, err := full.Get(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	registry.Add(resource)
	seen.waitFor(t, "a a|default/x")
}

func TestManagersRefuseControllersThatCannotWork(t *testing.T) {
	valid := recording("x", &log{})
	for name, tc := range map[string][]Controller{
		"two of one name":   {valid, valid},
		"no name":           {{Inputs: valid.Inputs, Reconcile: valid.Reconcile}},
		"nothing to follow": {{Name: "x", Reconcile: valid.Reconcile}},
		"nothing to do":     {{Name: "x", Inputs: valid.Inputs}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewManager(Config{Registry: storage.NewRegistry(), Controllers: tc}); err == nil {
				t.Error("want an error")
			}
		})
	}
}

func TestWorkBeginsWhenAllInputsHaveToldWhatExists(t *testing.T) {
	registry, store := newRegistry(t)
	create(t, store, "a", "x")
	late := watch.NewFakeWithChanSize(10, false)
	var seen log
	c := recording("one", &seen)
	var told atomic.Bool
	c.Inputs[0].Keys = func(event watch.Event) []Key {
		defer told.Store(true)
		return ObjectKey(event)
	}
	c.Inputs = append(c.Inputs, Input{
		Resource: schema.GroupResource{Resource: "late"},
		Keys:     ObjectKey,
		Stream: func(ctx context.Context) (watch.Interface, error) {
			context.AfterFunc(ctx, late.Stop)
			return late, nil
		},
	})
	start(t, Config{Registry: registry, Controllers: []Controller{c}})
	object := func(annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "y", Annotations: annotations}}
	}
	eventually(t, "the first input's events", told.Load)
	if seen.count("a a|default/x") > 0 {
		t.Error("work began before the second input had told what exists")
	}
	late.Add(object(map[string]string{logicalcluster.AnnotationKey: "a"}))
	late.Action(watch.Bookmark, object(nil))
	seen.waitFor(t, "a a|default/x")
}
