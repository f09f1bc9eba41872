package instance

import (
	"cmp"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// Reasons of the condition Ready of instances.
const (
	reasonReady        = "AllResourcesReady"
	reasonProvisioning = "Provisioning"
	reasonFailed       = "Failed"
	reasonTimedOut     = "ProvisioningTimedOut"
	reasonTooLarge     = "OutputsTooLarge"
	reasonUnavailable  = "RuntimeUnavailable"
	reasonDeleting     = "Deleting"
	reasonRemoved      = "TemplateRemoved"
	reasonNotFound     = "TemplateNotFound"
)

// conditionReady is the type of the condition that all instances have.
const conditionReady = "Ready"

// removedMessage is the status message while the Template of an instance is being removed.
const removedMessage = "This kind is no longer offered; the instance is being removed."

// commonFields are the fields of the status that are not outputs.
var commonFields = map[string]bool{"phase": true, "message": true, "conditions": true, "observedGeneration": true, "connectionSecret": true}

// IsCommonField reports whether the platform writes a field of the status, so that no output may have its name.
func IsCommonField(name string) bool { return commonFields[name] }

// reasons are the default reasons of the condition Ready for phases.
var reasons = map[infrastructurev1alpha1.InstancePhase]string{
	infrastructurev1alpha1.PhasePending:         reasonProvisioning,
	infrastructurev1alpha1.PhaseProvisioning:    reasonProvisioning,
	infrastructurev1alpha1.PhaseReady:           reasonReady,
	infrastructurev1alpha1.PhaseFailed:          reasonFailed,
	infrastructurev1alpha1.PhaseDeleting:        reasonDeleting,
	infrastructurev1alpha1.PhaseTemplateRemoved: reasonRemoved,
}

// settle adjusts the state of an instance to its previous status: a failure ends only when the instance is ready or its spec has changed,
// and an instance that is provisioned for too long has failed. Otherwise the phase would alternate at each attempt.
func settle(object *unstructured.Unstructured, state State, timeout time.Duration, now time.Time) State {
	if state.Phase != infrastructurev1alpha1.PhaseProvisioning && state.Phase != infrastructurev1alpha1.PhasePending {
		return state
	}
	ready := readyCondition(statusOf(object))
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != object.GetGeneration() {
		return state
	}
	left := ready.LastTransitionTime.Add(timeout).Sub(now)
	switch {
	case ready.Reason == reasonFailed || ready.Reason == reasonTimedOut:
		state.Phase, state.Reason, state.Message = infrastructurev1alpha1.PhaseFailed, ready.Reason, ready.Message
	case left <= 0:
		state.Phase, state.Reason = infrastructurev1alpha1.PhaseFailed, reasonTimedOut
		state.Message = "The instance has not become ready within " + timeout.String() + "; the platform keeps trying."
	case state.RecheckAfter == 0:
		state.RecheckAfter = left
	}
	return state
}

// tooLarge returns the state of an instance that is too large to be stored with its outputs. It has none.
func tooLarge() State {
	return State{Phase: infrastructurev1alpha1.PhaseFailed, Reason: reasonTooLarge, Outputs: map[string]any{}, RecheckAfter: tooLargeInterval,
		Message: "The instance is provided, but too large to be stored with its outputs; make its values shorter."}
}

// newStatus returns the status of an instance in a state, and whether it differs from the current one.
func newStatus(object *unstructured.Unstructured, state State, connected connection, now time.Time) (status map[string]any, changed bool) {
	before := statusOf(object)
	status = map[string]any{}
	outputs := state.Outputs
	if outputs == nil && state.Phase != infrastructurev1alpha1.PhaseReady {
		outputs = before
	}
	for name, value := range outputs {
		if !commonFields[name] {
			status[name] = value
		}
	}
	status["phase"], status["observedGeneration"] = string(state.Phase), object.GetGeneration()
	if state.Message != "" {
		status["message"] = state.Message
	}
	conditions := conditionsOf(before)
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse, Reason: cmp.Or(state.Reason, reasons[state.Phase]), Message: state.Message,
		ObservedGeneration: object.GetGeneration(), LastTransitionTime: metav1.NewTime(now)}
	if state.Phase == infrastructurev1alpha1.PhaseReady {
		ready.Status = metav1.ConditionTrue
	}
	if previous := readyCondition(before); previous != nil && previous.Status == ready.Status && previous.ObservedGeneration != ready.ObservedGeneration && ready.Status == metav1.ConditionFalse {
		meta.RemoveStatusCondition(&conditions, conditionReady) // a new spec has the full timeout to become ready
	}
	meta.SetStatusCondition(&conditions, ready)
	setConnection(status, &conditions, connected, object.GetGeneration(), now)
	status["conditions"] = encodeConditions(conditions)
	return status, !equality.Semantic.DeepEqual(before, status)
}

// setConnection sets the fields of the status about the connection.
func setConnection(status map[string]any, conditions *[]metav1.Condition, connected connection, generation int64, now time.Time) {
	if connected.secret != "" {
		status["connectionSecret"] = map[string]any{"namespace": connectionNamespace, "name": connected.secret}
	}
	if connected.condition == nil {
		meta.RemoveStatusCondition(conditions, conditionConnection)
		return
	}
	condition := *connected.condition
	condition.ObservedGeneration, condition.LastTransitionTime = generation, metav1.NewTime(now)
	meta.SetStatusCondition(conditions, condition)
}

// removalState returns the state of an instance that is being removed, by its tenant or because of its Template.
func removalState(object *unstructured.Unstructured) State {
	if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase == string(infrastructurev1alpha1.PhaseTemplateRemoved) {
		return State{Phase: infrastructurev1alpha1.PhaseTemplateRemoved, Message: removedMessage}
	}
	return State{Phase: infrastructurev1alpha1.PhaseDeleting, Message: "The instance is being removed."}
}

// unavailableStatus returns the current status with the condition that the instance cannot be reconciled or removed at the moment.
func unavailableStatus(object *unstructured.Unstructured, now time.Time) (status map[string]any, changed bool) {
	return unknownStatus(object, reasonUnavailable, "The platform cannot look after this instance at the moment; it tries again.", now)
}

// unknownStatus returns the current status with the condition Ready of status Unknown.
func unknownStatus(object *unstructured.Unstructured, reason, message string, now time.Time) (status map[string]any, changed bool) {
	before := statusOf(object)
	status = maps.Clone(before)
	if status == nil {
		status = map[string]any{"phase": string(infrastructurev1alpha1.PhasePending)}
	}
	if object.GetDeletionTimestamp() != nil && status["phase"] != string(infrastructurev1alpha1.PhaseTemplateRemoved) {
		status["phase"] = string(infrastructurev1alpha1.PhaseDeleting)
	}
	conditions := conditionsOf(before)
	meta.SetStatusCondition(&conditions, metav1.Condition{Type: conditionReady, Status: metav1.ConditionUnknown, Reason: reason,
		Message: message, ObservedGeneration: object.GetGeneration(), LastTransitionTime: metav1.NewTime(now)})
	status["conditions"] = encodeConditions(conditions)
	return status, !equality.Semantic.DeepEqual(before, status)
}

// statusOf returns a copy of the status of an object, or nil if it has none.
func statusOf(object *unstructured.Unstructured) map[string]any {
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	return status
}

// readyCondition returns the condition Ready of a status, or nil.
func readyCondition(status map[string]any) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(status), conditionReady)
}

func conditionsOf(status map[string]any) []metav1.Condition {
	list, _ := status["conditions"].([]any)
	var conditions []metav1.Condition
	for _, item := range list {
		fields, ok := item.(map[string]any)
		condition := metav1.Condition{}
		if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &condition) == nil {
			conditions = append(conditions, condition)
		}
	}
	return conditions
}

func encodeConditions(conditions []metav1.Condition) []any {
	var list []any
	for i := range conditions {
		// Conditions have only fields that can be converted.
		if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i]); err == nil {
			list = append(list, fields)
		}
	}
	return list
}
