package endpoints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	limited := func(workspaces int64) func(*corev1alpha1.Shard) {
		return func(s *corev1alpha1.Shard) {
			s.Spec.ResourceLimits = &corev1alpha1.ShardResourceLimits{Hard: corev1.ResourceList{"workspaces": *resource.NewQuantity(workspaces, resource.DecimalSI)}}
		}
	}
	var changes ShardChanges
	for _, step := range []struct {
		name  string
		event watch.Event
		want  bool
	}{
		{"new shard", event(watch.Added, shard()), true},
		{"same state again", event(watch.Added, shard()), false},
		{"heartbeat", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.ResourceVersion = "7" })), false},
		{"changed label", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.Labels["region"] = "west" })), true},
		{"changed address", event(watch.Modified, shard(func(s *corev1alpha1.Shard) { s.Labels["region"] = "west"; s.Spec.VirtualWorkspaceURL = "https://two" })), true},
		{"limits", event(watch.Modified, shard(limited(7))), true},
		{"same limits", event(watch.Modified, shard(limited(7))), false},
		{"changed limits", event(watch.Modified, shard(limited(8))), true},
		{"marked unschedulable", event(watch.Modified, shard(unschedulable(""))), true},
		{"changed reason", event(watch.Modified, shard(unschedulable("maintenance"))), true},
		{"same reason", event(watch.Modified, shard(unschedulable("maintenance"))), false},
		{"deleted shard", event(watch.Deleted, shard()), true},
		{"recreated shard", event(watch.Added, shard()), true},
		{"Shard object outside root", event(watch.Added, shard(func(s *corev1alpha1.Shard) { s.Name, s.Annotations[logicalcluster.AnnotationKey] = "two", "abc" })), false},
		{"object of another type", watch.Event{Type: watch.Added, Object: &metav1.Status{}}, false},
	} {
		if _, got := changes.Observe(step.event); got != step.want {
			t.Errorf("%s: changed %t, want %t", step.name, got, step.want)
		}
	}
}
