// Package v1alpha1 has the types of the infrastructure provider: Templates, the entries of a catalogue, and the common part of
// the instances that tenants create from them. The API group is configuration of the provider; GroupName is its default.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.kedge.faros.sh
package v1alpha1
