package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIBinding binds the resources of an APIExport in its workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type APIBinding struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what is bound and what the provider may do.
	// +required
	Spec APIBindingSpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status APIBindingStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *APIBinding) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *APIBinding) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &APIBinding{}

// APIBindingSpec defines what is bound and what the provider may do.
type APIBindingSpec struct {
	// reference names the export. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	Reference BindingReference `json:"reference"`

	// permissionClaims accept or reject the claims of the export. Claims that are not listed are not accepted.
	// +optional
	PermissionClaims []AcceptablePermissionClaim `json:"permissionClaims,omitempty"`
}

// BindingReference names what is bound.
//
// +kubebuilder:validation:ExactlyOneOf=export
type BindingReference struct {
	// export names an APIExport.
	// +optional
	Export *ExportBindingReference `json:"export,omitempty"`
}

// ExportBindingReference names an APIExport.
type ExportBindingReference struct {
	// path, or cluster name, of the workspace that holds the export. It defaults to that of the binding.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name of the export.
	// +required
	Name string `json:"name"`
}

// APIBindingStatus is the observed state of a binding.
type APIBindingStatus struct {
	// apiExportClusterName is the logical cluster of the export.
	// +optional
	APIExportClusterName string `json:"apiExportClusterName,omitempty"`

	// boundResources are the resources that the binding serves in its workspace.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	BoundResources []BoundAPIResource `json:"boundResources,omitempty"`

	// phase is the phase of the binding.
	// +optional
	Phase APIBindingPhaseType `json:"phase,omitempty"`

	// conditions of the object.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// appliedPermissionClaims are the accepted claims whose objects the provider sees.
	// +optional
	AppliedPermissionClaims []PermissionClaim `json:"appliedPermissionClaims,omitempty"`

	// exportPermissionClaims are the claims of the export.
	// +optional
	ExportPermissionClaims []PermissionClaim `json:"exportPermissionClaims,omitempty"`
}

// APIBindingPhaseType is the phase of a binding.
//
// +kubebuilder:validation:Enum="";Binding;Bound
type APIBindingPhaseType string

const (
	// APIBindingPhaseBinding means that resources are not served yet.
	APIBindingPhaseBinding APIBindingPhaseType = "Binding"
	// APIBindingPhaseBound means that the resources are served. A binding never leaves this phase.
	APIBindingPhaseBound APIBindingPhaseType = "Bound"
)

// BoundAPIResource is one resource that a binding serves.
type BoundAPIResource struct {
	// group of the resource, empty for the core group.
	// +required
	Group string `json:"group"`

	// resource is its name, in plural.
	// +required
	Resource string `json:"resource"`

	// schema describes it.
	// +required
	Schema BoundAPIResourceSchema `json:"schema"`

	// storageVersions are the versions in which objects were ever stored.
	// +optional
	// +listType=set
	StorageVersions []string `json:"storageVersions,omitempty"`
}

// BoundAPIResourceSchema identifies the schema of a bound resource.
type BoundAPIResourceSchema struct {
	// name of the APIResourceSchema.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// UID of the APIResourceSchema, which is the name of its CustomResourceDefinition.
	// +required
	// +kubebuilder:validation:MinLength=1
	UID string `json:"UID"`

	// identityHash is the identity hash of the export, under which objects are stored.
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
