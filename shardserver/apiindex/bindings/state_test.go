package bindings

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

func TestStateHoldsPhaseAndConditions(t *testing.T) {
	object := &apisv1alpha2.APIBinding{}
	if state := stateOf(object); state.Phase() != "" || state.Condition(0) != "" {
		t.Errorf("a new binding is in state %v", state)
	}
	object.Status.Phase = apisv1alpha2.APIBindingPhaseBound
	conditionsv1alpha1.MarkTrue(object, apisv1alpha2.InitialBindingCompleted)
	conditionsv1alpha1.MarkFalse(object, apisv1alpha2.PermissionClaimsValid, "Reason", conditionsv1alpha1.SeverityError, "no")
	conditionsv1alpha1.MarkUnknown(object, conditionsv1alpha1.Ready, "Reason", "unknown")
	state := stateOf(object)
	want := map[conditionsv1alpha1.Type]corev1.ConditionStatus{
		apisv1alpha2.InitialBindingCompleted: "True", apisv1alpha2.PermissionClaimsValid: "False", conditionsv1alpha1.Ready: "Unknown",
	}
	if state.Phase() != apisv1alpha2.APIBindingPhaseBound {
		t.Errorf("phase is %q", state.Phase())
	}
	for i, condition := range Conditions {
		if got := state.Condition(i); got != want[condition] {
			t.Errorf("%s is %q, want %q", condition, got, want[condition])
		}
	}
}

func TestStatesAreCounted(t *testing.T) {
	index := &Index{states: map[State]int{}}
	a, b := entry{set: &resourceSet{}, state: 1}, entry{set: &resourceSet{}, state: 2}
	index.countState(entry{}, a)
	index.countState(entry{}, a)
	index.countState(a, b)
	if states := index.CountStates(); states[1] != 1 || states[2] != 1 {
		t.Errorf("states are %v", states)
	}
	index.countState(a, entry{})
	index.countState(b, entry{})
	if states := index.CountStates(); len(states) != 0 {
		t.Errorf("states remain without bindings: %v", states)
	}
}
