package storage

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/etcd"
)

const prefix = "/core/configmaps"

// cachedConfigMaps is storage with a watch cache whose time is the given clock, on an etcd of its own.
func cachedConfigMaps(t *testing.T, clock *testingclock.FakeClock) storage.Interface {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: t.TempDir(), UnsafeNoFsync: true, WALSizeBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	backend := storagebackend.NewDefaultConfig("/registry", legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion))
	backend.Transport.ServerList = []string{server.Endpoint}
	backend.Transport.TrustedCAFile, backend.Transport.CertFile, backend.Transport.KeyFile = server.CAFile, server.CertFile, server.KeyFile
	key := func(obj runtime.Object) (string, error) {
		configMap := obj.(*core.ConfigMap)
		return prefix + "/" + configMap.Namespace + "/" + configMap.Name, nil
	}
	store, destroy, err := decorate(cached(clock))(backend.ForResource(schema.GroupResource{Resource: "configmaps"}), prefix, key,
		func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.ConfigMapList{} },
		storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return store
}

func capacity(t *testing.T) int {
	t.Helper()
	value, err := testutil.GetGaugeMetricValue(cachermetrics.WatchCacheCapacity.WithLabelValues("", "configmaps"))
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestARushIsForgotten proves that the watch cache gives up the events of a rush once they are old, that nobody sees
// how, and that who comes with a revision of that time is told so, as after any compaction.
func TestARushIsForgotten(t *testing.T) {
	cachermetrics.Register()
	clock := testingclock.NewFakeClock(time.Now())
	store := cachedConfigMaps(t, clock)
	everywhere := in(logicalcluster.Wildcard)
	var seen watch.Interface
	until(t, "the watch cache is ready", func() bool {
		var err error
		seen, err = store.Watch(everywhere, prefix, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true})
		return err == nil
	})
	defer seen.Stop()

	const rush = 700
	first, last := "", ""
	write := func(name string) {
		created := &core.ConfigMap{}
		configMap := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := store.Create(in(logicalcluster.Root), prefix+"/default/"+name, configMap, created, 0); err != nil {
			t.Fatal(err)
		}
		if event := <-seen.ResultChan(); event.Type != watch.Added || event.Object.(metav1.Object).GetName() != name {
			t.Fatalf("a watch of all clusters sees %s of %v instead of the creation of %s", event.Type, event.Object, name)
		}
		if first == "" {
			first = created.ResourceVersion
		}
		last = created.ResourceVersion
	}
	for i := range rush {
		write(fmt.Sprint("cm", i))
	}
	until(t, "the cache grows with the rush", func() bool { return capacity(t) >= rush })
	resume := func(revision string) error {
		w, err := store.Watch(in(logicalcluster.Root), prefix+"/", storage.ListOptions{ResourceVersion: revision, Predicate: storage.Everything, Recursive: true})
		if err != nil {
			return err
		}
		defer w.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		select {
		case event := <-w.ResultChan():
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
		case <-ctx.Done():
		}
		return nil
	}
	if err := resume(first); err != nil {
		t.Fatalf("events are kept until they are old: %v", err)
	}

	clock.Step(storagebackend.DefaultCompactInterval + time.Second)
	until(t, "the events of the rush go", func() bool {
		clock.Step(fillerPause)
		return apierrors.IsResourceExpired(resume(first))
	})
	if err := resume(last); err != nil {
		t.Errorf("who is up to date goes on: %v", err)
	}
	clock.Step(storagebackend.DefaultCompactInterval + time.Second)
	until(t, "the cache is as small as it was", func() bool {
		clock.Step(fillerPause)
		return capacity(t) == smallestRing
	})
	write("after") // fails if the watch has seen any filler
	list := &core.ConfigMapList{}
	if err := store.GetList(everywhere, prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true, ResourceVersion: last, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, list); err != nil || len(list.Items) != rush+1 {
		t.Errorf("%d objects are listed, want %d: %v", len(list.Items), rush+1, err)
	}
}

func TestWhatIsMissingFromARing(t *testing.T) {
	begun := time.Now()
	const window, age = 75 * time.Second, 5 * time.Minute
	for name, tc := range map[string]struct {
		events  int // in one rush
		recent  int // at the time of the question
		fillers int // between
		after   time.Duration
		want    int
	}{
		"few events are not worth it":                {events: 150, after: time.Hour},
		"a rush that is not over":                    {events: 1000, after: time.Minute},
		"a rush that is over":                        {events: 1000, after: time.Hour, want: 1600},
		"a rush that is over, and some that come":    {events: 1000, recent: 10, after: time.Hour, want: 1590},
		"a rush after a rush":                        {events: 1000, recent: 500, after: time.Hour},
		"a full ring of fillers that have grown old": {events: 700, fillers: 800, after: time.Hour, want: halvings},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing(window)
			add := func(n int, at time.Time, filler bool) {
				for range n {
					r.add(at, filler)
				}
			}
			add(tc.events, begun, false)
			add(tc.fillers, begun.Add(age), true)
			now := begun.Add(tc.after)
			add(tc.recent, now, false)
			if got := r.missing(now, age); got != tc.want {
				t.Errorf("missing() = %d with a capacity of %d, want %d", got, r.capacity(), tc.want)
			}
		})
	}
}
