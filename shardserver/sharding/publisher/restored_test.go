package publisher

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
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

// TestPublishedAfterRestore: a restored shard publishes nothing of a logical cluster before it knows that no other shard has it, and all of it then.
func TestPublishedAfterRestore(t *testing.T) {
	confirmed := controller.NewChanges(nil)
	key := controller.Request{ClusterName: logicalcluster.MustParseName("moving"), Name: "an-export"}
	source := &objectSource{restored: Restored{Answers: func(logicalcluster.Name) bool { return false }, Confirmed: confirmed}, clusterStates: map[logicalcluster.Name]clusterState{}}
	if _, err := source.desired(logicalcluster.With(t.Context(), key.ClusterName), key); !errors.Is(err, ErrUnchanged) {
		t.Errorf("before: %v", err)
	}
	inputs := source.restored.inputs()
	if len(inputs) != 1 {
		t.Fatalf("%d inputs", len(inputs))
	}
	events, err := inputs[0].WatchFunc(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	want := controller.Request{ClusterName: key.ClusterName} // all objects in it
	confirmed.Add(want)
	for event := range events.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		if got := inputs[0].MapFunc(event); len(got) != 1 || got[0] != want {
			t.Errorf("got %v", got)
		}
		break
	}
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "moving", corev1alpha1.MovedToAnnotationKey: "beta"}}}
	source.clusterKeys(watch.Event{Type: watch.Added, Object: cluster})
	cluster.Annotations[corev1alpha1.OutdatedAnnotationKey] = "2030-01-02T00:00:00Z"
	if got := source.clusterKeys(watch.Event{Type: watch.Modified, Object: cluster}); len(got) != 1 || got[0] != want {
		t.Errorf("when it is fenced: %v", got)
	}
}
