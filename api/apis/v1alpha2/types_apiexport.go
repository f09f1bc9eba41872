package v1alpha2

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
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
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
	// resources are the offered resources, each with the schema that describes it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=group
	Resources []ResourceSchema `json:"resources,omitempty"`

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

// ResourceSchema is one offered resource.
type ResourceSchema struct {
	// name of the resource, in plural.
	// +required
	Name string `json:"name"`

	// group of the resource, empty for the core group.
	// +required
	Group string `json:"group"`

	// schema is the name of an APIResourceSchema in the workspace of the export. It ends in ".<name>.<group or core>".
	// +required
	Schema string `json:"schema"`

	// storage defines where objects are stored.
	// +optional
	// +kubebuilder:default={crd: {}}
	Storage ResourceSchemaStorage `json:"storage,omitempty"`
}

// ResourceSchemaStorage defines where objects of a resource are stored. Exactly one field is set.
//
// +kubebuilder:validation:ExactlyOneOf=crd;virtual
type ResourceSchemaStorage struct {
	// crd stores objects in consuming workspaces, like custom resources.
	// +optional
	CRD *ResourceSchemaStorageCRD `json:"crd,omitempty"`

	// virtual reads objects from a virtual workspace.
	// +optional
	Virtual *ResourceSchemaStorageVirtual `json:"virtual,omitempty"`
}

// ResourceSchemaStorageCRD stores objects in consuming workspaces. It has no options.
type ResourceSchemaStorageCRD struct{}

// ResourceSchemaStorageVirtual reads objects from a virtual workspace.
type ResourceSchemaStorageVirtual struct {
	// reference names an object in the workspace of the export that lists the URLs of the virtual workspace, such as a
	// ClusterCachedResourceEndpointSlice.
	// +required
	Reference corev1.TypedLocalObjectReference `json:"reference"`

	// identityHash is the identity of the resource in the virtual workspace.
	// +required
	IdentityHash string `json:"identityHash"`
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
