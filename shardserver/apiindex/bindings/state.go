package bindings

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Conditions are the condition types of bindings that State records.
var Conditions = [...]conditionsv1alpha1.Type{
	conditionsv1alpha1.Ready, apisv1alpha2.APIExportValid, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.BindingUpToDate,
	apisv1alpha2.InitialBindingCompleted, apisv1alpha2.PermissionClaimsApplied, apisv1alpha2.PermissionClaimsValid,
}

// phases are the phases of bindings, by their number in State.
var phases = [...]apisv1alpha2.APIBindingPhaseType{"", apisv1alpha2.APIBindingPhaseBinding, apisv1alpha2.APIBindingPhaseBound}

// statuses are the statuses of conditions, by their number in State. The first stands for a missing condition.
var statuses = [...]corev1.ConditionStatus{"", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// State is the phase of a binding and the statuses of its conditions, two bits each.
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

// Phase returns the phase of the binding.
func (s State) Phase() apisv1alpha2.APIBindingPhaseType { return phases[s&3] }

// Condition returns the status of Conditions[i], or "" if the condition is missing.
func (s State) Condition(i int) corev1.ConditionStatus { return statuses[s>>(2*(i+1))&3] }

// CountStates returns the number of bindings of the shard by state.
func (i *Index) CountStates() map[State]int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return maps.Clone(i.states)
}

// countState moves a binding from its previous to its current state. Either may be the zero entry. Callers must hold
// i.mu.
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
