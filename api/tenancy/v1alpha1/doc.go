// Package v1alpha1 contains the tenancy.kcp.io/v1alpha1 API: Workspaces, which form the tree of logical clusters,
// WorkspaceTypes, which define the initialization of new workspaces, and WorkspaceAuthenticationConfigurations. It also
// defines the annotations, conditions and reasons that clients use. It contains no server code.
//
// +groupName=tenancy.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.tenancy.v1alpha1
package v1alpha1
