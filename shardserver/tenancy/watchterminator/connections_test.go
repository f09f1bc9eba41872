package watchterminator

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const theCluster = "abc"

// opened is the set with one connection of each sort, and tells which are still open.
func opened(t *testing.T, started time.Time) (*Connections, func() map[string]bool) {
	t.Helper()
	c := New(nil)
	ended := map[string]bool{}
	var mu sync.Mutex
	for name, added := range map[string]struct {
		cluster logicalcluster.Name
		*connection
	}{
		"content":   {logicalcluster.MustParseName(theCluster), &connection{started: started}},
		"itself":    {logicalcluster.MustParseName(theCluster), &connection{started: started, looksAtItself: true}},
		"later":     {logicalcluster.MustParseName(theCluster), &connection{started: started.Add(time.Minute)}},
		"neighbour": {logicalcluster.MustParseName("def"), &connection{started: started}},
		"all":       {logicalcluster.Wildcard, &connection{started: started}},
	} {
		added.cancel = func() { mu.Lock(); defer mu.Unlock(); ended[name] = true }
		c.add(added.cluster, added.connection)
	}
	return c, func() map[string]bool { mu.Lock(); defer mu.Unlock(); return maps.Clone(ended) }
}

func TestWhatAnEventEnds(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	cluster := func(phase corev1alpha1.LogicalClusterPhaseType, inactive bool, deleted *metav1.Time) *corev1alpha1.LogicalCluster {
		out := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: phase}}
		out.Annotations = map[string]string{logicalcluster.AnnotationKey: theCluster}
		if inactive {
			out.Annotations[corev1alpha1.InactiveAnnotationKey] = "true"
		}
		out.DeletionTimestamp = deleted
		return out
	}
	at := metav1.NewTime(now)
	for name, tc := range map[string]struct {
		kind     watch.EventType
		object   *corev1alpha1.LogicalCluster
		want     []string
		wildcard bool
	}{
		"nothing where nothing happened":                            {watch.Modified, cluster("Ready", false, nil), nil, false},
		"all when it turns inactive, and those over all clusters":   {watch.Modified, cluster("Ready", true, nil), []string{"content", "itself", "later"}, true},
		"its content while it is inactive":                          {watch.Modified, cluster("Inactive", true, nil), []string{"content", "later"}, false},
		"what began before its deletion":                            {watch.Modified, cluster("Deleting", false, &at), []string{"content", "itself"}, false},
		"the same if it was inactive: it is being emptied":          {watch.Modified, cluster("Inactive", true, &at), []string{"content", "itself"}, false},
		"all when it is gone":                                       {watch.Deleted, cluster("Deleting", false, &at), []string{"content", "itself", "later"}, false},
		"nothing of an inactive one that is being deleted but that": {watch.Modified, cluster("Ready", true, &at), []string{"content", "itself"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, ended := opened(t, now)
			if got := c.handle(watch.Event{Type: tc.kind, Object: tc.object}); got != tc.wildcard {
				t.Errorf("wildcard is %v", got)
			}
			got := ended()
			if len(got) != len(tc.want) {
				t.Errorf("ended %v, want %v", got, tc.want)
			}
			for _, name := range tc.want {
				if !got[name] {
					t.Errorf("%s is still open", name)
				}
			}
		})
	}
}

func TestNothingIsKeptOfWhatHasEnded(t *testing.T) {
	isLong := func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }
	c := New(isLong)
	during := 0
	handler := c.With(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		during = len(c.open)
	}), storage.NewRegistry())
	for verb, want := range map[string]int{"watch": 1, "get": 0} {
		ctx := request.WithRequestInfo(logicalcluster.With(context.Background(), logicalcluster.MustParseName(theCluster)), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		if during != want || len(c.open) != 0 {
			t.Errorf("%s: %d open while it is served, %d afterwards", verb, during, len(c.open))
		}
	}
}

// only is a storage of one logical cluster.
type only struct {
	storage.Store
	cluster *corev1alpha1.LogicalCluster
}

func (s only) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return s.cluster, nil
}

func TestARequestThatWaitedWhileItsLogicalClusterTurnedInactiveEnds(t *testing.T) {
	c := New(func(*http.Request, *request.RequestInfo) bool { return true })
	for name, tc := range map[string]struct {
		path     string
		inactive string
		ends     bool
	}{
		"a watch":                        {"/api/v1/configmaps", "true", true},
		"what an inactive one is, it is": {"/apis/core.kcp.io/v1alpha1/logicalclusters", "true", false},
		"an active one":                  {"/api/v1/configmaps", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.InactiveAnnotationKey: tc.inactive}}}
			registry := storage.NewRegistry()
			registry.Add(&storage.Resource{GVR: logicalClusters.WithVersion("v1alpha1"), Prefix: "/x", Store: only{cluster: cluster}})
			ended := false
			handler := c.With(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { ended = req.Context().Err() != nil }), registry)
			ctx := request.WithRequestInfo(logicalcluster.With(t.Context(), logicalcluster.MustParseName(theCluster)), &request.RequestInfo{Verb: "watch"})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tc.path, nil).WithContext(ctx))
			if ended != tc.ends {
				t.Errorf("ended: %v", ended)
			}
		})
	}
}

// brokenOnce is a storage of no logical clusters, whose first watch says that it cannot go on when it is told to.
type brokenOnce struct {
	storage.Store
	broken <-chan struct{}
	begun  atomic.Int32
}

func (*brokenOnce) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &corev1alpha1.LogicalClusterList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (s *brokenOnce) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	stream := watch.NewFake()
	if s.begun.Add(1) > 1 {
		context.AfterFunc(ctx, stream.Stop)
		return stream, nil
	}
	go func() {
		defer stream.Stop()
		select {
		case <-s.broken:
			gone := apierrors.NewResourceExpired("changes are no longer known").Status()
			stream.Error(&gone)
		case <-ctx.Done():
		}
	}()
	return stream, nil
}

func TestRequestsOverAllLogicalClustersEndAfterEventsWereMissed(t *testing.T) {
	c, ended := opened(t, time.Now())
	broken := make(chan struct{})
	registry, store := storage.NewRegistry(), &brokenOnce{broken: broken}
	registry.Add(&storage.Resource{GVR: logicalClusters.WithVersion("v1alpha1"), Prefix: "/x", Store: store})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx, registry) })
	defer running.Wait()
	defer stop()
	until := func(what string, reached func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !reached(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited for %s", what)
			}
		}
	}
	until("the first watch", func() bool { return store.begun.Load() == 1 })
	if len(ended()) > 0 {
		t.Errorf("ended before anything was missed: %v", ended())
	}
	close(broken)
	until("the end of the request over all", func() bool { return ended()["all"] })
	if len(ended()) > 1 {
		t.Errorf("ended are %v", ended())
	}
}
