package connections

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
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
	return c, func() map[string]bool { mu.Lock(); defer mu.Unlock(); return ended }
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
	}))
	for verb, want := range map[string]int{"watch": 1, "get": 0} {
		ctx := request.WithRequestInfo(logicalcluster.With(context.Background(), logicalcluster.MustParseName(theCluster)), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		if during != want || len(c.open) != 0 {
			t.Errorf("%s: %d open while it is served, %d afterwards", verb, during, len(c.open))
		}
	}
}
