package endpoints

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestShardChanges(t *testing.T) {
	shard := func(set ...func(*corev1alpha1.Shard)) *corev1alpha1.Shard {
		s := &corev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{
				Name: "one", Labels: map[string]string{"region": "east"}, Annotations: map[string]string{logicalcluster.AnnotationKey: "root"},
			},
			Spec: corev1alpha1.ShardSpec{BaseURL: "https://one", VirtualWorkspaceURL: "https://one"},
		}
		for _, set := range set {
			set(s)
		}
		return s
	}
	event := func(kind watch.EventType, s *corev1alpha1.Shard) watch.Event {
		return watch.Event{Type: kind, Object: s}
	}
	unschedulable := func(reason string) func(*corev1alpha1.Shard) {
		return func(s *corev1alpha1.Shard) { s.Annotations[corev1alpha1.UnschedulableAnnotationKey] = reason }
	}
	var changes ShardChanges
	for _, step := range []struct {
		name  string
		event watch.Event
		want  bool
	}{
		{"a shard that comes", event(watch.Added, shard()), true},
		{"the same again", event(watch.Added, shard()), false},
		{"its heartbeat", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.ResourceVersion = "7" })), false},
		{"another label", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.Labels["region"] = "west" })), true},
		{"another address", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.Labels["region"] = "west"; s.Spec.VirtualWorkspaceURL = "https://two" })), true},
		{"that nothing is to be placed there", event(watch.Modified, shard(unschedulable(""))), true},
		{"another reason for that", event(watch.Modified, shard(unschedulable("maintenance"))), true},
		{"the same reason", event(watch.Modified, shard(unschedulable("maintenance"))), false},
		{"its end", event(watch.Deleted, shard()), true},
		{"its return", event(watch.Added, shard()), true},
		{"what is called a shard elsewhere", event(watch.Added, shard(func(s *corev1alpha1.Shard) { s.Name, s.Annotations[logicalcluster.AnnotationKey] = "two", "abc" })), false},
		{"something else", watch.Event{Type: watch.Added, Object: &metav1.Status{}}, false},
	} {
		if _, got := changes.Observe(step.event); got != step.want {
			t.Errorf("%s: news %t, want %t", step.name, got, step.want)
		}
	}
}
