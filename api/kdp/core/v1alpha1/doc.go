// Package v1alpha1 has the types of core.kdp.k8c.io that the sync agent knows: Service, an API that an organisation offers.
//
// +kubebuilder:object:generate=true
// +groupName=core.kdp.k8c.io
package v1alpha1
