// Package v1alpha1 holds the condition that the status of every kcp type carries, and the few functions that keep a
// list of them sorted and without unnecessary changes, with a summary in Ready. It must not import any kind.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.conditions.v1alpha1
package v1alpha1
