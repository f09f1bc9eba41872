// Package v1alpha2 holds the API apis.kcp.io/v1alpha2: APIExports and APIBindings in the form that is stored. It also
// names the annotations, labels, finalizers, conditions and reasons that clients meet on them. Types only; no behaviour
// of a server.
//
// +groupName=apis.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.apis.v1alpha2
package v1alpha2
