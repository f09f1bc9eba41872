package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIBinding binds the resources of an APIExport in the workspace of the APIBinding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type APIBinding struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the desired state of the APIBinding.
	// +required
	Spec APIBindingSpec `json:"spec"`

	// status describes the observed state of the APIBinding.
	// +optional
	Status APIBindingStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (a *APIBinding) GetConditions() conditionsv1alpha1.Conditions { return a.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (a *APIBinding) SetConditions(conditions conditionsv1alpha1.Conditions) {
	a.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &APIBinding{}

// APIBindingSpec describes the desired state of an APIBinding.
type APIBindingSpec struct {
	// reference is a reference to the APIExport to bind. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	Reference BindingReference `json:"reference"`

	// permissionClaims is the list of permission claims of the APIExport that are accepted or rejected. Claims that are
	// not listed are not accepted.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +listMapKey=identityHash
	PermissionClaims []AcceptablePermissionClaim `json:"permissionClaims,omitempty"`

	// deletionPolicy defines what happens to the objects of bound resources when the APIBinding is deleted. Delete
	// deletes them, unless another APIBinding binds the same resource. WaitForSuccessor delays the deletion until
	// other APIBindings bind all resources with the same schema and identity. It can be changed while the APIBinding
	// is being deleted, and does not apply when the workspace is deleted. Defaults to Delete.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy APIBindingDeletionPolicy `json:"deletionPolicy,omitempty"`
}

// APIBindingDeletionPolicy defines what happens to the objects of bound resources.
//
// +kubebuilder:validation:Enum=Delete;WaitForSuccessor
type APIBindingDeletionPolicy string

const (
	// DeletionPolicyDelete deletes the objects of resources that no other APIBinding binds with the same schema and
	// identity.
	DeletionPolicyDelete APIBindingDeletionPolicy = "Delete"
	// DeletionPolicyWaitForSuccessor keeps the APIBinding, with its resources, until other APIBindings bind all of them with the
	// same schema and identity.
	DeletionPolicyWaitForSuccessor APIBindingDeletionPolicy = "WaitForSuccessor"
)

// BindingReference is a reference to the object to bind.
type BindingReference struct {
	// export is a reference to an APIExport.
	// +optional
	Export *ExportBindingReference `json:"export,omitempty"`
}

// ExportBindingReference is a reference to an APIExport.
type ExportBindingReference struct {
	// path is the path or cluster name of the workspace that contains the APIExport. Defaults to the workspace of the
	// referring object.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name is the name of the APIExport.
	// +required
	Name string `json:"name"`
}

// APIBindingStatus describes the observed state of an APIBinding.
type APIBindingStatus struct {
	// apiExportClusterName is the name of the logical cluster that contains the APIExport.
	// +optional
	APIExportClusterName string `json:"apiExportClusterName,omitempty"`

	// boundResources is the list of resources that are served in the workspace because of the APIBinding.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	BoundResources []BoundAPIResource `json:"boundResources,omitempty"`

	// phase is the current phase of the APIBinding.
	// +optional
	Phase APIBindingPhaseType `json:"phase,omitempty"`

	// conditions is the list of current conditions of the APIBinding.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// appliedPermissionClaims is the list of accepted permission claims whose objects are visible to the provider.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +listMapKey=identityHash
	AppliedPermissionClaims []ScopedPermissionClaim `json:"appliedPermissionClaims,omitempty"`

	// exportPermissionClaims is the list of permission claims of the APIExport.
	// +optional
	ExportPermissionClaims []PermissionClaim `json:"exportPermissionClaims,omitempty"`
}

// APIBindingPhaseType is the phase of an APIBinding.
//
// +kubebuilder:validation:Enum="";Binding;Bound
type APIBindingPhaseType string

const (
	// APIBindingPhaseBinding indicates that resources are not served yet.
	APIBindingPhaseBinding APIBindingPhaseType = "Binding"
	// APIBindingPhaseBound indicates that the resources are served. An APIBinding does not leave this phase.
	APIBindingPhaseBound APIBindingPhaseType = "Bound"
)

// BoundAPIResource describes a resource that is served because of an APIBinding.
type BoundAPIResource struct {
	// group is the API group of the resource. Empty for the core group.
	// +required
	Group string `json:"group"`

	// resource is the plural name of the resource.
	// +required
	Resource string `json:"resource"`

	// schema identifies the APIResourceSchema of the resource.
	// +required
	Schema BoundAPIResourceSchema `json:"schema"`

	// storageVersions is the list of all versions in which objects have ever been stored.
	// +optional
	// +listType=set
	StorageVersions []string `json:"storageVersions,omitempty"`
}

// BoundAPIResourceSchema identifies the APIResourceSchema of a bound resource.
type BoundAPIResourceSchema struct {
	// name is the name of the APIResourceSchema.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// UID is the UID of the APIResourceSchema. It is also the name of the corresponding CustomResourceDefinition.
	// +required
	// +kubebuilder:validation:MinLength=1
	UID string `json:"UID"`

	// identityHash is the identity hash of the APIExport. Objects are stored under this hash.
	// +required
	// +kubebuilder:validation:MinLength=1
	IdentityHash string `json:"identityHash"`
}

// APIBindingList is a list of APIBindings.
//
// +kubebuilder:object:root=true
type APIBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []APIBinding `json:"items"`
}
