package apiindex

import (
	corev1 "k8s.io/api/core/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ConditionStatus is the type and status of a condition of an export.
type ConditionStatus struct {
	Type   conditionsv1alpha1.Type
	Status corev1.ConditionStatus
}

// conditionsOf returns the statuses of the conditions that the server sets on an export.
func conditionsOf(export *apisv1alpha2.APIExport) []ConditionStatus {
	var all []ConditionStatus
	for _, condition := range []conditionsv1alpha1.Type{apisv1alpha2.APIExportIdentityValid, apisv1alpha2.APIExportVirtualWorkspaceURLsReady} {
		if found := conditionsv1alpha1.Get(export, condition); found != nil {
			all = append(all, ConditionStatus{found.Type, found.Status})
		}
	}
	return all
}

// CountConditions returns the number of exports by condition status.
func (r *Resolver) CountConditions() map[ConditionStatus]int {
	counts := map[ConditionStatus]int{}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		counts[ConditionStatus{apisv1alpha2.APIExportIdentityValid, status}] = 0
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, known := range r.entries {
		for _, condition := range known.conditions {
			counts[condition]++
		}
	}
	return counts
}
