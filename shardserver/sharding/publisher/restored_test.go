package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestPublishedStates: what is left of a logical cluster at the origin stays published until the destination has published it. What a restored origin has
// of one that it had handed over before is withdrawn.
func TestPublishedStates(t *testing.T) {
	const movedTo, arriving, outdated = corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey, corev1alpha1.OutdatedAnnotationKey
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
		err         error
	}{
		"open":          {want: true},
		"paused":        {annotations: map[string]string{corev1alpha1.WritesPausedAnnotationKey: "t"}, want: true},
		"arriving":      {annotations: map[string]string{arriving: "m"}},
		"moved away":    {annotations: map[string]string{movedTo: "beta"}, err: ErrUnchanged},
		"moved earlier": {annotations: map[string]string{movedTo: "beta", outdated: "2030-01-02T00:00:00Z"}},
	} {
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
		if got, err := clusterStateOf(cluster).publishes(); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

// TestPublishedAfterRestore: a restored shard changes nothing that it has published before it knows which logical clusters others have, and computes all of
// it again then. What is derived from several logical clusters waits for all of these, and replaces what the cache has lost meanwhile.
func TestPublishedAfterRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		await  func(Restored, Source) Source
		before []string
	}{
		"of one logical cluster": {await: Restored.AwaitCluster, before: []string{"in-root"}},
		"derived":                {await: Restored.AwaitAll, before: []string{"in-root", "moving"}},
	} {
		t.Run(name, func(t *testing.T) { testPublishedAfterRestore(t, tc.await, tc.before) })
	}
}

// restoredEnv is a publisher of a restored shard.
type restoredEnv struct {
	*env
	restored  Restored
	confirmed atomic.Bool
	// state is the state of what the source desires, failing the name of an object for which it fails.
	state, failing string
}

func newRestoredEnv(t *testing.T, await func(Restored, Source) Source) *restoredEnv {
	t.Helper()
	e := &restoredEnv{state: "backup"}
	e.restored = Restored{
		Answers:     func(cluster logicalcluster.Name) bool { return e.confirmed.Load() || cluster == logicalcluster.Root },
		IsConfirmed: e.confirmed.Load,
		Confirmed:   controller.NewChanges(nil),
	}
	resource := shardingv1alpha1.Resource("logicalclusterreports")
	inputs := controller.NewChanges(func() []controller.Request {
		return []controller.Request{{ClusterName: moving, Name: "moving"}, {ClusterName: logicalcluster.Root, Name: "in-root"}, {ClusterName: moving, Name: "awaiting"}}
	})
	e.env = newEnvOf(t, await(e.restored, Source{
		Resource: resource, Inputs: []controller.Source{inputs.Source(resource)},
		Desired: func(ctx context.Context, key controller.Request) (runtime.Object, error) {
			if cluster, _ := logicalcluster.From(ctx); cluster != key.ClusterName {
				t.Errorf("%s is computed in %q", key, cluster)
			}
			switch key.Name {
			case e.failing:
				return nil, errors.New("injected failure")
			case "awaiting":
				return nil, &storage.NotSyncedError{StatusError: apierrors.NewServiceUnavailable("another shard waits for this one")}
			}
			report := &shardingv1alpha1.LogicalClusterReport{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
			report.Spec.Reason = e.state
			return report, nil
		},
	}))
	return e
}

var moving = logicalcluster.MustParseName("moving")

// published returns the states of the published objects by name.
func (e *restoredEnv) published(t *testing.T) map[string]string {
	t.Helper()
	resource, _ := client.FindResource(e.cfg.Sources[0].Resource)
	objects, _, err := e.cfg.Cache.List(t.Context(), resource.GroupVersionResource)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, object := range objects {
		var report shardingv1alpha1.LogicalClusterReport
		if err := object.Decode(&report); err != nil {
			t.Fatal(err)
		}
		states[object.Name] = report.Spec.Reason
	}
	return states
}

// events watches an input of the source.
func (e *restoredEnv) events(t *testing.T, input int) watch.Interface {
	t.Helper()
	events, err := e.cfg.Sources[0].Inputs[input].WatchFunc(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events
}

// reconcileNext reconciles what the next event of an input is mapped to, and returns the names of the keys that fail.
func (e *restoredEnv) reconcileNext(t *testing.T, input int, events watch.Interface) (failed []string) {
	t.Helper()
	for event := range events.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		for _, key := range e.cfg.Sources[0].Inputs[input].MapFunc(event) {
			if e.reconcile(t, key) != nil {
				failed = append(failed, key.Name)
			}
		}
		break
	}
	return failed
}

func (e *restoredEnv) reconcile(t *testing.T, key controller.Request) error {
	t.Helper()
	_, err := e.Controllers()[0].Reconcile(logicalcluster.With(t.Context(), key.ClusterName), key)
	return err
}

func testPublishedAfterRestore(t *testing.T, await func(Restored, Source) Source, before []string) {
	const confirmed, each = 0, 1 // inputs
	e := newRestoredEnv(t, await)
	e.publishReports(t, isComplete)
	unchanged := map[string]string{}
	for _, name := range before {
		unchanged[name] = "backup"
	}
	if got := e.published(t); !maps.Equal(got, unchanged) {
		t.Fatalf("before: %q, want %q", got, unchanged)
	}
	e.state = "now"
	if err := e.reconcile(t, controller.Request{ClusterName: moving, Name: "moving"}); err != nil {
		t.Error(err)
	}
	if got := e.published(t); !maps.Equal(got, unchanged) {
		t.Errorf("after a change: %q, want %q", got, unchanged)
	}

	all, single := e.events(t, confirmed), e.events(t, each)
	e.confirmed.Store(true)
	e.failing = "in-root"
	e.restored.Confirmed.Add(controller.Request{ClusterName: logicalcluster.Wildcard})
	if failed := e.reconcileNext(t, confirmed, all); len(failed) > 0 {
		t.Fatal("the key of all objects fails, so that a failure of one would repeat all")
	}
	var failed []string
	for range 3 {
		failed = append(failed, e.reconcileNext(t, each, single)...)
	}
	if slices.Sort(failed); !slices.Equal(failed, []string{"awaiting", "in-root"}) {
		t.Errorf("%q fail", failed)
	}
	if got := e.published(t)["moving"]; got != "now" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestAbsentAfterRestore: what a restored shard has withdrawn since the backup stays absent in a cache that has lost nothing.
func TestAbsentAfterRestore(t *testing.T) {
	e := newRestoredEnv(t, Restored.AwaitAll)
	source := &e.cfg.Sources[0]
	restored, none := *source, func(context.Context, controller.Request) (runtime.Object, error) { return nil, nil }
	source.Desired, source.refill = none, none
	e.publishReports(t, isComplete)

	*source, e.reported = restored, reported{}
	e.reset() // another process
	e.publishReports(t, isComplete)
	if err := e.reconcile(t, controller.Request{ClusterName: logicalcluster.Root, Name: "in-root"}); err != nil {
		t.Error(err)
	}
	if got := e.published(t); len(got) > 0 {
		t.Errorf("published: %q", got)
	}
}

// TestStatesOfClusters: the objects of a logical cluster are computed again when it is fenced.
func TestStatesOfClusters(t *testing.T) {
	source := &objectSource{clusterStates: map[logicalcluster.Name]clusterState{}}
	want := controller.Request{ClusterName: logicalcluster.MustParseName("moving")} // all objects in it
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "moving", corev1alpha1.MovedToAnnotationKey: "beta"}}}
	source.clusterKeys(watch.Event{Type: watch.Added, Object: cluster})
	cluster.Annotations[corev1alpha1.OutdatedAnnotationKey] = "2030-01-02T00:00:00Z"
	if got := source.clusterKeys(watch.Event{Type: watch.Modified, Object: cluster}); len(got) != 1 || got[0] != want {
		t.Errorf("when it is fenced: %v", got)
	}
}
