package bindings

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Conditions are the condition types of bindings that a State knows of.
var Conditions = [...]conditionsv1alpha1.Type{
	conditionsv1alpha1.Ready, apisv1alpha2.APIExportValid, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.BindingUpToDate,
	apisv1alpha2.InitialBindingCompleted, apisv1alpha2.PermissionClaimsApplied, apisv1alpha2.PermissionClaimsValid,
}

// phases are those of bindings.
var phases = [...]apisv1alpha2.APIBindingPhaseType{"", apisv1alpha2.APIBindingPhaseBinding, apisv1alpha2.APIBindingPhaseBound}

// statuses are those of conditions; the first is that of one that is missing.
var statuses = [...]corev1.ConditionStatus{"", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// State is the phase of a binding and what its conditions say, two bits each.
type State uint16

func stateOf(binding *apisv1alpha2.APIBinding) State {
	var state State
	for i, phase := range phases {
		if binding.Status.Phase == phase {
			state = State(i)
		}
	}
	for i, condition := range Conditions {
		found := conditionsv1alpha1.Get(binding, condition)
		if found == nil {
			continue
		}
		for s, status := range statuses {
			if found.Status == status {
				state |= State(s) << (2 * (i + 1))
			}
		}
	}
	return state
}

// Phase returns the phase.
func (s State) Phase() apisv1alpha2.APIBindingPhaseType { return phases[s&3] }

// Condition returns the status of one of Conditions, or "" for one that is missing.
func (s State) Condition(i int) corev1.ConditionStatus { return statuses[s>>(2*(i+1))&3] }

// States returns how many bindings of the shard are in which state.
func (i *Index) States() map[State]int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return maps.Clone(i.states)
}

// countState takes a binding from its state before to that of now. Neither need exist. The lock is held.
func (i *Index) countState(previous, current entry) {
	if previous.set != nil {
		if i.states[previous.state]--; i.states[previous.state] == 0 {
			delete(i.states, previous.state)
		}
	}
	if current.set != nil {
		i.states[current.state]++
	}
}
