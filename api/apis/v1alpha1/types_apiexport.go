package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIExport offers resources to other workspaces, and says what its provider wants in return.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="VirtualWorkspaceURLsReady")].status`
type APIExport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is offered.
	// +optional
	Spec APIExportSpec `json:"spec,omitempty"`

	// status is what the system adds.
	// +optional
	Status APIExportStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *APIExport) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *APIExport) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &APIExport{}

// APIExportSpec is what an export offers.
type APIExportSpec struct {
	// latestResourceSchemas are the names of APIResourceSchemas beside the export that describe what is offered.
	// +optional
	// +listType=set
	LatestResourceSchemas []string `json:"latestResourceSchemas,omitempty"`

	// identity tells this export from others that offer resources of the same names. Whoever knows the secret owns the
	// objects. The server makes one if it is left out.
	// +optional
	Identity *Identity `json:"identity,omitempty"`

	// maximalPermissionPolicy bounds what users of consuming workspaces may do with the resources, whatever their own
	// workspaces allow.
	// +optional
	MaximalPermissionPolicy *MaximalPermissionPolicy `json:"maximalPermissionPolicy,omitempty"`

	// permissionClaims are resources of consuming workspaces that the provider asks to access. Consumers accept or
	// reject each.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// Identity tells an export from others.
type Identity struct {
	// secretRef names the secret whose key "key" holds what the identity is the hash of.
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// MaximalPermissionPolicy bounds what users of consuming workspaces may do with resources.
//
// +kubebuilder:validation:ExactlyOneOf=local
type MaximalPermissionPolicy struct {
	// local takes the bounds from RBAC in the workspace of the export. Its users and groups carry the prefix
	// "apis.kcp.io:binding:".
	// +optional
	Local *LocalAPIExportPolicy `json:"local,omitempty"`
}

// LocalAPIExportPolicy takes bounds from RBAC. There is nothing to say about it.
type LocalAPIExportPolicy struct{}

// APIExportStatus is what the system adds to an export.
type APIExportStatus struct {
	// identityHash is the lower-case hex SHA-256 of the identity. Once set it never changes.
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// virtualWorkspaces are where the provider finds what consumers made. APIExportEndpointSlices have replaced them.
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace is the address of one virtual workspace.
type VirtualWorkspace struct {
	// url of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`
}

// APIExportList is a list of APIExports.
//
// +kubebuilder:object:root=true
type APIExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []APIExport `json:"items"`
}
