package instances

import (
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
	reasonUnavailable  = "RuntimeUnavailable"
	reasonDeleting     = "Deleting"
	reasonRemoved      = "TemplateRemoved"
)

// conditionReady is the type of the condition that all instances have.
const conditionReady = "Ready"

// commonFields are the fields of the status that are not outputs.
var commonFields = map[string]bool{"phase": true, "message": true, "conditions": true, "observedGeneration": true, "connectionSecret": true}

// IsCommonField reports whether a field of the status is written by the platform, so that no output can have its name.
func IsCommonField(name string) bool { return commonFields[name] }

// reasons are the reasons of phases.
var reasons = map[infrastructurev1alpha1.InstancePhase]string{
	infrastructurev1alpha1.PhasePending:         reasonProvisioning,
	infrastructurev1alpha1.PhaseProvisioning:    reasonProvisioning,
	infrastructurev1alpha1.PhaseReady:           reasonReady,
	infrastructurev1alpha1.PhaseFailed:          reasonFailed,
	infrastructurev1alpha1.PhaseDeleting:        reasonDeleting,
	infrastructurev1alpha1.PhaseTemplateRemoved: reasonRemoved,
}

// newStatus returns the status of an instance in a state, and whether it differs from the present one. Outputs of other states are
// removed.
func newStatus(object *unstructured.Unstructured, state State, connected connection, now time.Time) (status map[string]any, changed bool) {
	before, _, _ := unstructured.NestedMap(object.Object, "status")
	status = map[string]any{"phase": string(state.Phase), "observedGeneration": object.GetGeneration()}
	for name, value := range state.Outputs {
		if !commonFields[name] {
			status[name] = value
		}
	}
	if state.Message != "" {
		status["message"] = state.Message
	}
	conditions := conditionsOf(before)
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse, Reason: reasons[state.Phase], Message: state.Message,
		ObservedGeneration: object.GetGeneration(), LastTransitionTime: metav1.NewTime(now)}
	if state.Phase == infrastructurev1alpha1.PhaseReady {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&conditions, ready)
	setConnection(status, &conditions, connected, object.GetGeneration(), now)
	status["conditions"] = encodeConditions(conditions)
	return status, !equality.Semantic.DeepEqual(before, status)
}

// setConnection has the status say whether the tenant has the connection, and where.
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

// unavailableStatus returns the present status with the condition that the instance cannot be looked after now.
func unavailableStatus(object *unstructured.Unstructured, now time.Time) (status map[string]any, changed bool) {
	before, _, _ := unstructured.NestedMap(object.Object, "status")
	status = maps.Clone(before)
	if status == nil {
		status = map[string]any{"phase": string(infrastructurev1alpha1.PhasePending)}
	}
	conditions := conditionsOf(before)
	meta.SetStatusCondition(&conditions, metav1.Condition{Type: conditionReady, Status: metav1.ConditionUnknown, Reason: reasonUnavailable,
		Message: "The platform cannot look after this instance at the moment; it tries again.", ObservedGeneration: object.GetGeneration(), LastTransitionTime: metav1.NewTime(now)})
	status["conditions"] = encodeConditions(conditions)
	return status, !equality.Semantic.DeepEqual(before, status)
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
