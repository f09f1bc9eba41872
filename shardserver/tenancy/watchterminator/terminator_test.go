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
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const testCluster = "abc"

func noVirtualWorkspace(context.Context) func(*corev1alpha1.LogicalCluster) bool { return nil }

// newTerminator returns a Terminator with one open request of each kind, and a function that returns the cancelled ones.
func newTerminator(t *testing.T, started time.Time) (*Terminator, func() map[string]bool) {
	t.Helper()
	c := New(nil, noVirtualWorkspace)
	ended := map[string]bool{}
	var mu sync.Mutex
	for name, added := range map[string]struct {
		cluster logicalcluster.Name
		*openRequest
	}{
		"content":   {logicalcluster.MustParseName(testCluster), &openRequest{started: started}},
		"itself":    {logicalcluster.MustParseName(testCluster), &openRequest{started: started, allowedWhileInactive: true}},
		"later":     {logicalcluster.MustParseName(testCluster), &openRequest{started: started.Add(time.Minute)}},
		"neighbour": {logicalcluster.MustParseName("def"), &openRequest{started: started}},
		"all":       {logicalcluster.Wildcard, &openRequest{started: started}},
	} {
		added.cancel = func() { mu.Lock(); defer mu.Unlock(); ended[name] = true }
		c.track(added.cluster, added.openRequest)
	}
	return c, func() map[string]bool { mu.Lock(); defer mu.Unlock(); return maps.Clone(ended) }
}

func TestEventsTerminateRequests(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	cluster := func(phase corev1alpha1.LogicalClusterPhaseType, inactive bool, deleted *metav1.Time) *corev1alpha1.LogicalCluster {
		out := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: phase}}
		out.Annotations = map[string]string{logicalcluster.AnnotationKey: testCluster}
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
		"no change terminates nothing":                                 {watch.Modified, cluster("Ready", false, nil), nil, false},
		"becoming inactive terminates all, wildcard requests included": {watch.Modified, cluster("Ready", true, nil), []string{"content", "itself", "later"}, true},
		"an inactive cluster terminates requests to its content":       {watch.Modified, cluster("Inactive", true, nil), []string{"content", "later"}, false},
		"deletion terminates what started before it":                   {watch.Modified, cluster("Deleting", false, &at), []string{"content", "itself"}, false},
		"deletion of an inactive cluster does the same":                {watch.Modified, cluster("Inactive", true, &at), []string{"content", "itself"}, false},
		"removal terminates all":                                       {watch.Deleted, cluster("Deleting", false, &at), []string{"content", "itself", "later"}, false},
		"deletion of a cluster that becomes inactive does the same":    {watch.Modified, cluster("Ready", true, &at), []string{"content", "itself"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, ended := newTerminator(t, now)
			handle := c.onUpdate
			if tc.kind == watch.Deleted {
				handle = c.onDelete
			}
			if err := handle(t.Context(), tc.object); err != nil {
				t.Error(err)
			}
			if got := len(c.wildcardDue) > 0; got != tc.wildcard {
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

func TestEndedRequestsAreUntracked(t *testing.T) {
	isLongRunning := func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }
	c := New(isLongRunning, noVirtualWorkspace)
	during := 0
	handler := c.WithTermination(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		during = len(c.open)
	}), storage.NewRegistry(kcpcore.Locality))
	for verb, want := range map[string]int{"watch": 1, "get": 0} {
		ctx := request.WithRequestInfo(logicalcluster.With(context.Background(), logicalcluster.MustParseName(testCluster)), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		if during != want || len(c.open) != 0 {
			t.Errorf("%s: %d open while it is served, %d afterwards", verb, during, len(c.open))
		}
	}
}

// singleClusterStore is a store with one logical cluster.
type singleClusterStore struct {
	storage.Store
	cluster *corev1alpha1.LogicalCluster
}

func (s singleClusterStore) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return s.cluster, nil
}

func TestRequestToInactiveClusterIsCancelled(t *testing.T) {
	c := New(func(*http.Request, *request.RequestInfo) bool { return true }, noVirtualWorkspace)
	for name, tc := range map[string]struct {
		path     string
		inactive string
		ends     bool
	}{
		"a watch":                   {"/api/v1/configmaps", "true", true},
		"the LogicalCluster object": {"/apis/core.kcp.io/v1alpha1/logicalclusters", "true", false},
		"an active logical cluster": {"/api/v1/configmaps", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.InactiveAnnotationKey: tc.inactive}}}
			registry := storage.NewRegistry(kcpcore.Locality)
			registry.Add(&storage.Resource{GVR: logicalClusters.WithVersion("v1alpha1"), Prefix: "/x", Store: singleClusterStore{cluster: cluster}})
			ended := false
			handler := c.WithTermination(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { ended = req.Context().Err() != nil }), registry)
			ctx := request.WithRequestInfo(logicalcluster.With(t.Context(), logicalcluster.MustParseName(testCluster)), &request.RequestInfo{Verb: "watch"})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tc.path, nil).WithContext(ctx))
			if ended != tc.ends {
				t.Errorf("ended: %v", ended)
			}
		})
	}
}

// brokenOnce is an empty store whose first watch fails when broken is closed.
type brokenOnce struct {
	storage.Store
	broken  <-chan struct{}
	watches atomic.Int32
}

func (*brokenOnce) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &corev1alpha1.LogicalClusterList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (b *brokenOnce) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	watcher := watch.NewFake()
	if b.watches.Add(1) > 1 {
		context.AfterFunc(ctx, watcher.Stop)
		return watcher, nil
	}
	go func() {
		defer watcher.Stop()
		select {
		case <-b.broken:
			gone := apierrors.NewResourceExpired("too old resource version").Status()
			watcher.Error(&gone)
		case <-ctx.Done():
		}
	}()
	return watcher, nil
}

func TestWildcardRequestsAfterMissedEvents(t *testing.T) {
	c, ended := newTerminator(t, time.Now())
	broken := make(chan struct{})
	registry, store := storage.NewRegistry(kcpcore.Locality), &brokenOnce{broken: broken}
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
	until("the first watch", func() bool { return store.watches.Load() == 1 })
	if len(ended()) > 0 {
		t.Errorf("ended before anything was missed: %v", ended())
	}
	close(broken)
	until("the end of the wildcard request", func() bool { return ended()["all"] })
	if len(ended()) > 1 {
		t.Errorf("ended are %v", ended())
	}
}
