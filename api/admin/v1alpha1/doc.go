// Package v1alpha1 contains the admin.kcp.io/v1alpha1 API: PermissionClaimPolicy, by which administrators of an installation permit claims
// that name no identity. Only the admin workspace, at /services/admin, serves it. It contains no server code.
//
// +groupName=admin.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.admin.v1alpha1
package v1alpha1
