package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIExport offers resources to other workspaces and lists the permissions that its provider claims there.
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

	// spec defines what is offered.
	// +optional
	Spec APIExportSpec `json:"spec,omitempty"`

	// status is set by the server.
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

// APIExportSpec defines what an export offers.
type APIExportSpec struct {
	// latestResourceSchemas are the names of APIResourceSchemas in the workspace of the export that describe its resources.
	// +optional
	// +listType=set
	LatestResourceSchemas []string `json:"latestResourceSchemas,omitempty"`

	// identity distinguishes this export from others that offer resources of the same names. Access to the Secret means
	// ownership of the objects. If unset, the server generates one.
	// +optional
	Identity *Identity `json:"identity,omitempty"`

	// maximalPermissionPolicy limits what users of consuming workspaces may do with the resources, in addition to the
	// authorization in those workspaces.
	// +optional
	MaximalPermissionPolicy *MaximalPermissionPolicy `json:"maximalPermissionPolicy,omitempty"`

	// permissionClaims are resources of consuming workspaces to which the provider requests access. Consumers accept or
	// reject each.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// Identity distinguishes an export from others.
type Identity struct {
	// secretRef names the Secret with the identity in key "key".
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// MaximalPermissionPolicy limits what users of consuming workspaces may do with resources.
//
// +kubebuilder:validation:ExactlyOneOf=local
type MaximalPermissionPolicy struct {
	// local applies RBAC in the workspace of the export, with users and groups prefixed by "apis.kcp.io:binding:".
	// +optional
	Local *LocalAPIExportPolicy `json:"local,omitempty"`
}

// LocalAPIExportPolicy applies RBAC in the workspace of the export. It has no options.
type LocalAPIExportPolicy struct{}

// APIExportStatus is the observed state of an export.
type APIExportStatus struct {
	// identityHash is the lower-case hex SHA-256 of the identity. It is immutable once set.
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`

	// conditions of the object.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// virtualWorkspaces are the URLs of the export's virtual workspaces. Deprecated: use APIExportEndpointSlices.
	// +optional
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
}

// VirtualWorkspace is the URL of one virtual workspace.
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
