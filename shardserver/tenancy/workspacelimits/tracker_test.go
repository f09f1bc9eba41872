package workspacelimits

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func clusterWith(name, path string, annotations map[string]string) *corev1alpha1.LogicalCluster {
	all := map[string]string{logicalcluster.AnnotationKey: name}
	if path != "" {
		all[logicalcluster.PathAnnotationKey] = path
	}
	for key, value := range annotations {
		all["core.kcp.io/"+key] = value
	}
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: all}}
}

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        Limits
		limited     bool
	}{
		"no annotation":       {nil, Limits{None, None}, false},
		"children":            {map[string]string{"max-child-workspaces": "3"}, Limits{3, None}, true},
		"descendants":         {map[string]string{"max-descendant-workspaces": "0"}, Limits{None, 0}, true},
		"both":                {map[string]string{"max-child-workspaces": "3", "max-descendant-workspaces": "7"}, Limits{3, 7}, true},
		"a word":              {map[string]string{"max-child-workspaces": "many"}, Limits{None, None}, false},
		"a negative number":   {map[string]string{"max-child-workspaces": "-1"}, Limits{None, None}, false},
		"more than 31 bits":   {map[string]string{"max-child-workspaces": "2147483648"}, Limits{None, None}, false},
		"the largest integer": {map[string]string{"max-child-workspaces": "2147483647"}, Limits{1<<31 - 1, None}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, limited := Of(clusterWith("a", "", tc.annotations).Annotations); got != tc.want || limited != tc.limited {
				t.Errorf("got %+v, %t", got, limited)
			}
		})
	}
}

// TestEntries checks which limits apply to a path, and that nothing remains of logical clusters without limits.
func TestEntries(t *testing.T) {
	tracker := NewTracker(storage.NewRegistry(storage.Locality{}))
	above := func(path string) string {
		text := ""
		for _, e := range tracker.above(logicalcluster.MustParsePath(path)) {
			text += e.cluster.String() + " "
		}
		return text
	}
	limit := map[string]string{"max-child-workspaces": "3"}
	for _, cluster := range []*corev1alpha1.LogicalCluster{
		clusterWith("org", "root:org", limit), clusterWith("team", "root:org:team", limit), clusterWith("unlimited", "root:org:other", nil),
		clusterWith("pathless", "", limit),
	} {
		_ = tracker.updateCluster(t.Context(), cluster)
	}
	for path, want := range map[string]string{
		"root": "", "root:org": "org ", "root:organisation": "", "root:org:team": "team org ", "root:org:team:a:b": "team org ", "root:org:other": "org ", "pathless:a": "pathless ",
	} {
		if got := above(path); got != want {
			t.Errorf("limits of %s: got %q, want %q", path, got, want)
		}
	}
	_ = tracker.updateCluster(t.Context(), clusterWith("team", "root:moved", limit))
	if got := above("root:org:team") + above("root:moved"); got != "org team " {
		t.Errorf("a logical cluster with another path: %q", got)
	}
	_ = tracker.updateCluster(t.Context(), clusterWith("org", "root:org", nil))
	_ = tracker.deleteCluster(t.Context(), clusterWith("team", "root:moved", limit))
	_ = tracker.replaceClusters(t.Context(), nil, "")
	tracker.flush(t.Context())
	if size := len(tracker.entries) + len(tracker.paths) + len(tracker.changed); size != 0 {
		t.Errorf("entries %v, paths %v, changed %v", tracker.entries, tracker.paths, tracker.changed)
	}
}

// TestReservationsEnd checks that a request without a stored Workspace counts for a limited time.
func TestReservationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := NewTracker(storage.NewRegistry(storage.Locality{}))
		ctx, cancel := context.WithCancel(t.Context())
		path := logicalcluster.MustParsePath("root:org")
		cluster := logicalcluster.MustParseName("org")
		tracker.mu.Lock()
		for i := range 10 {
			tracker.reserve(ctx, workspaceKey{cluster, fmt.Sprint(i % 5)}, path) // five names, twice
		}
		if got := tracker.reservedBelow(logicalcluster.MustParsePath("root"), workspaceKey{cluster, "4"}); got != 4 {
			t.Errorf("%d others are reserved, want 4", got)
		}
		tracker.mu.Unlock()
		time.Sleep(time.Hour) // of the test's clock: the request still runs
		synctest.Wait()
		if len(tracker.reserved) != 5 {
			t.Errorf("%d reservations during the request", len(tracker.reserved))
		}
		cancel()
		time.Sleep(deliveryTimeout)
		synctest.Wait()
		if len(tracker.reserved) != 0 {
			t.Errorf("reservations remain: %v", tracker.reserved)
		}
	})
}

// TestCountFailures checks that counts which cannot be right are not used. No resource is stored, so that reads fail.
func TestCountFailures(t *testing.T) {
	tracker := NewTracker(storage.NewRegistry(storage.Locality{}))
	path := logicalcluster.MustParsePath("root:org")
	_ = tracker.updateCluster(t.Context(), clusterWith("org", path.String(), map[string]string{"max-descendant-workspaces": "3"}))
	cluster := logicalcluster.MustParseName("org")
	e := tracker.entries[cluster]
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{logicalcluster.AnnotationKey: "org"}}}
	e.stored = 1
	if err := tracker.replaceWorkspaces(t.Context(), []*tenancyv1alpha1.Workspace{workspace}, ""); err == nil || e.isCounted() || e.stored != 1 {
		t.Errorf("a list without the path of a workspace: error %v, counted %t, %d stored", err, e.isCounted(), e.stored)
	}
	if _ = tracker.addWorkspace(t.Context(), workspace); !tracker.recount || e.stored != 1 {
		t.Errorf("an event without the path of the workspace: recount %t, %d stored", tracker.recount, e.stored)
	}
	tracker.flush(t.Context())
	if tracker.add(path, -1); tracker.recount || e.stored != 0 {
		t.Errorf("the deletion of the only workspace: recount %t, %d stored", tracker.recount, e.stored)
	}
	if tracker.add(path, -1); !tracker.recount || e.stored != 0 {
		t.Errorf("one deletion too many: recount %t, %d stored", tracker.recount, e.stored)
	}
	key := workspaceKey{cluster, "a"}
	tracker.reserve(t.Context(), key, path)
	if _ = tracker.deleteWorkspace(t.Context(), workspace); tracker.reserved[key] == nil {
		t.Error("the deletion of an earlier workspace ends the reservation of one that is created again")
	}
	if _ = tracker.addWorkspace(t.Context(), workspace); tracker.reserved[key] != nil {
		t.Error("a workspace that is delivered is still reserved")
	}
}

// TestCheckEndsWithRequest checks that a request does not wait for another check after its own end.
func TestCheckEndsWithRequest(t *testing.T) {
	tracker := NewTracker(storage.NewRegistry(storage.Locality{}))
	ctx, cancel := context.WithCancel(t.Context())
	if err := tracker.startCheck(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := tracker.startCheck(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a second check: %v", err)
	}
	tracker.endCheck()
	if err := tracker.startCheck(t.Context()); err != nil {
		t.Errorf("a check after the first one: %v", err)
	}
}

// TestWatch checks that a watch delivers every changed entry, removed ones included, and leaves nothing behind.
func TestWatch(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tracker := NewTracker(storage.NewRegistry(storage.Locality{}))
	limited := clusterWith("org", "root:org", map[string]string{"max-child-workspaces": "3"})
	_ = tracker.updateCluster(t.Context(), limited)
	stream, err := tracker.changes.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want watch.EventType) {
		t.Helper()
		event := <-stream.ResultChan()
		if keys := controller.RequestForObject(event); event.Type != want || want != watch.Bookmark && keys[0].String() != "org|cluster" {
			t.Errorf("got %s of %v, want %s", event.Type, keys, want)
		}
	}
	expect(watch.Added)
	expect(watch.Bookmark)
	tracker.flush(t.Context())
	expect(watch.Modified)
	_ = tracker.deleteCluster(t.Context(), limited)
	tracker.flush(t.Context())
	expect(watch.Modified)
	stream.Stop()
	if _, open := <-stream.ResultChan(); open {
		t.Error("the watch is open")
	}
}

func TestUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		limits                Limits
		children, descendants int64
		message               string
		reached               bool
	}{
		"children below":      {Limits{3, None}, 2, 9, "2 of 3 workspaces in it", false},
		"children reached":    {Limits{3, None}, 3, 9, "3 of 3 workspaces in it", true},
		"descendants below":   {Limits{None, 10}, 2, 9, "9 of 10 workspaces in it and below", false},
		"descendants above":   {Limits{None, 5}, 2, 9, "9 of 5 workspaces in it and below", true},
		"one of both reached": {Limits{3, 10}, 3, 9, "3 of 3 workspaces in it, 9 of 10 workspaces in it and below", true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{}
			setUsage(cluster, tc.limits, tc.children, tc.descendants)
			message, reached := conditionsv1alpha1.GetMessage(cluster, corev1alpha1.WorkspacesWithinLimits), conditionsv1alpha1.IsFalse(cluster, corev1alpha1.WorkspacesWithinLimits)
			if message != tc.message || reached != tc.reached {
				t.Errorf("got %q, %t", message, reached)
			}
		})
	}
}
