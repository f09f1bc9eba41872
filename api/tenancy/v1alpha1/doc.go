// Package v1alpha1 holds the API tenancy.kcp.io/v1alpha1: the Workspaces that form the tree of logical clusters, and
// the WorkspaceTypes that define how new ones are initialized. It also names the annotations, conditions and reasons
// that clients use. Types only; no behaviour of a server.
//
// +groupName=tenancy.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.tenancy.v1alpha1
package v1alpha1
