// Package v1alpha2 contains the types of the API apis.kcp.io/v1alpha2: APIExports and APIBindings, in their storage
// version. It also defines the annotations, labels, finalizers, conditions and reasons of these objects. The package
// contains no server code.
//
// +groupName=apis.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.apis.v1alpha2
package v1alpha2
