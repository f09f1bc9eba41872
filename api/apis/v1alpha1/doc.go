// Package v1alpha1 holds the API apis.kcp.io/v1alpha1: the APIResourceSchemas that describe resources, the APIExports
// that export them to other workspaces, the APIBindings that bind them there, the APIExportEndpointSlices with the URLs
// under which providers access the objects of consumers, and APIConversions. Exports and bindings are stored as
// v1alpha2, which also names their annotations, conditions and reasons. Types only; no behaviour of a server.
//
// +groupName=apis.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.apis.v1alpha1
package v1alpha1
