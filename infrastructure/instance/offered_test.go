package instance

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// generation returns a generation of a Template for which the controller has accepted the given generation.
func generation(this, accepted int64, changes ...func(*infrastructurev1alpha1.Template)) *infrastructurev1alpha1.Template {
	t := &infrastructurev1alpha1.Template{}
	t.Generation, t.Status.ObservedGeneration, t.UID = this, accepted, "first"
	t.Spec.Backend, t.Status.Backend.Name = "kro", "kro"
	for _, change := range changes {
		change(t)
	}
	return t
}

func TestOffered(t *testing.T) {
	deleted := func(t *infrastructurev1alpha1.Template) { t.DeletionTimestamp = &metav1.Time{} }
	other := func(uid types.UID) func(*infrastructurev1alpha1.Template) {
		return func(t *infrastructurev1alpha1.Template) { t.UID = uid }
	}
	moving := func(t *infrastructurev1alpha1.Template) {
		t.Spec.Backend, t.Status.Backend.ReplacedBy = "manifest", "manifest"
	}
	ready := func(t *infrastructurev1alpha1.Template) {
		meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{Type: infrastructurev1alpha1.ConditionReady, Status: metav1.ConditionTrue})
	}
	type list []*infrastructurev1alpha1.Template
	for _, test := range []struct {
		name       string
		templates  list
		generation int64
		accepted   bool
		concerns   bool // the last change
	}{
		{"accepted", list{generation(1, 1)}, 1, true, false},
		{"edited", list{generation(1, 1), generation(2, 1)}, 1, true, false},
		{"edited again", list{generation(1, 1), generation(2, 1), generation(3, 1)}, 1, true, false},
		{"an edit is accepted", list{generation(1, 1), generation(2, 1), generation(2, 2)}, 2, true, true},
		{"an acceptance is missed", list{generation(1, 1), generation(3, 2)}, 1, true, false},
		{"started after an edit", list{generation(2, 1)}, 2, false, false},
		{"which is edited", list{generation(2, 1), generation(3, 1)}, 3, false, true},
		{"which is accepted", list{generation(2, 1), generation(2, 2)}, 2, true, true},
		{"removed", list{generation(1, 1), generation(2, 1), generation(3, 1, deleted)}, 3, false, true},
		{"repaired while it is removed", list{generation(1, 1), generation(2, 1, deleted), generation(3, 1, deleted)}, 3, false, true},
		{"created again", list{generation(1, 1), generation(2, 1, other("second"))}, 2, false, true},
		{"another backend takes over", list{generation(1, 1), generation(2, 1, moving)}, 1, true, true},
		{"can be used again", list{generation(1, 1), generation(1, 1, ready)}, 1, true, true},
		{"nothing", list{generation(1, 1), generation(1, 1)}, 1, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, got *offered
			for _, latest := range test.templates {
				before, got = got, offer(got, latest)
				if got.latest != latest || got.template.Status.Backend != latest.Status.Backend {
					t.Errorf("of %d, backend %+v is known", got.latest.Generation, got.template.Status.Backend)
				}
			}
			if got.template.Generation != test.generation || isAccepted(got.template) != test.accepted {
				t.Errorf("generation %d is offered, accepted: %t", got.template.Generation, isAccepted(got.template))
			}
			if before != nil && got.concerns(before) != test.concerns {
				t.Errorf("concerns instances: %t", !test.concerns)
			}
		})
	}
}
