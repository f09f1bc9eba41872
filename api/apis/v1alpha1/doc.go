// Package v1alpha1 contains the types of the API apis.kcp.io/v1alpha1: APIResourceSchemas describe resources,
// APIExports export them to other workspaces, APIBindings bind them in those workspaces, APIExportEndpointSlices list
// the URLs at which providers access the objects of consumers, and APIConversions describe conversions between
// versions. APIExports and APIBindings are stored as v1alpha2. Their annotations, conditions and reasons are defined in
// package v1alpha2. The package contains no server code.
//
// +groupName=apis.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.apis.v1alpha1
package v1alpha1
