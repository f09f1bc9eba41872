package services

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
)

func TestHolderOfAnAPIGroup(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	service := func(name, group string, age int, ready bool) kdpcorev1alpha1.Service {
		s := kdpcorev1alpha1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(time.Duration(-age) * time.Second))},
			Spec: kdpcorev1alpha1.ServiceSpec{APIGroup: group}}
		if ready {
			s.Status.Conditions = []metav1.Condition{{Type: kdpcorev1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		}
		return s
	}
	for _, tc := range []struct {
		name string
		all  []kdpcorev1alpha1.Service
		want string
	}{
		{"the only one", []kdpcorev1alpha1.Service{service("b", "b.example", 1, false), service("a", "a.example", 2, true)}, "b"},
		{"the older one", []kdpcorev1alpha1.Service{service("a", "b.example", 1, false), service("c", "b.example", 2, false)}, "c"},
		{"the one that is offered, although another one is older", []kdpcorev1alpha1.Service{service("a", "b.example", 2, false), service("c", "b.example", 1, true)}, "c"},
		{"the first by name among those of one second", []kdpcorev1alpha1.Service{service("c", "b.example", 1, false), service("a", "b.example", 1, false)}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := holder("b.example", tc.all); got == nil || got.Name != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
	if got := holder("c.example", nil); got != nil {
		t.Errorf("nobody has the group, but %v", got)
	}
}
