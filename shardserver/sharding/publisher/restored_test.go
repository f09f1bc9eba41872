package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
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
// it again then. What is derived from several logical clusters waits for all of these.
func TestPublishedAfterRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		await  func(Restored, Source) Source
		before []string
	}{
		"of one logical cluster": {await: Restored.AwaitCluster, before: []string{"in-root"}},
		"derived":                {await: Restored.AwaitAll},
	} {
		t.Run(name, func(t *testing.T) { testPublishedAfterRestore(t, tc.await, tc.before) })
	}
}

func testPublishedAfterRestore(t *testing.T, await func(Restored, Source) Source, before []string) {
	var confirmed atomic.Bool
	restored := Restored{
		Answers:     func(cluster logicalcluster.Name) bool { return confirmed.Load() || cluster == logicalcluster.Root },
		IsConfirmed: confirmed.Load,
		Confirmed:   controller.NewChanges(nil),
	}
	resource := shardingv1alpha1.Resource("logicalclusterreports")
	inputs := controller.NewChanges(func() []controller.Request {
		return []controller.Request{{ClusterName: logicalcluster.MustParseName("moving"), Name: "moving"}, {ClusterName: logicalcluster.Root, Name: "in-root"}}
	})
	e := newEnvOf(t, await(restored, Source{
		Resource: resource, Inputs: []controller.Source{inputs.Source(resource)},
		Desired: func(ctx context.Context, key controller.Request) (runtime.Object, error) {
			if cluster, _ := logicalcluster.From(ctx); cluster != key.ClusterName {
				t.Errorf("%s is computed in %q", key, cluster)
			}
			return &shardingv1alpha1.LogicalClusterReport{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, nil
		},
	}))
	e.publishReports(t, isComplete)
	if got := slices.Sorted(maps.Keys(e.publishedNames(t))); !slices.Equal(got, before) {
		t.Fatalf("before: %q, want %q", got, before)
	}

	publishing := e.Controllers()[0]
	events, err := restored.Confirmed.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	confirmed.Store(true)
	restored.Confirmed.Add(controller.Request{ClusterName: logicalcluster.Wildcard})
	for event := range events.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		for _, key := range publishing.Sources[1].MapFunc(event) {
			if _, err := publishing.Reconcile(logicalcluster.With(t.Context(), key.ClusterName), key); err != nil {
				t.Error(err)
			}
		}
		break
	}
	if got := slices.Sorted(maps.Keys(e.publishedNames(t))); !slices.Equal(got, []string{"in-root", "moving"}) {
		t.Errorf("afterwards: %q", got)
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
