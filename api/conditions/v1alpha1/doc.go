// Package v1alpha1 contains the conditions in the status of all kcp types, and functions that read and update them.
// Lists of conditions are sorted, are updated only if a condition changes, and are summarized in the condition Ready.
// The package must not import any API type.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.conditions.v1alpha1
package v1alpha1
