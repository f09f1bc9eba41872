package v1alpha1

// GroupResource identifies a resource by API group and name.
type GroupResource struct {
	// group is the API group of the resource. Empty for the core group.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group,omitempty"`

	// resource is the plural name of the resource.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// PermissionClaim requests full access to a resource in consuming workspaces.
//
// +kubebuilder:validation:XValidation:rule="(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",message="either \"all\" or \"resourceSelector\" must be set"
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// all indicates that all objects of the resource are claimed.
	// +optional
	All bool `json:"all,omitempty"`

	// resourceSelector selects the claimed objects. It is stored but ignored: all objects are claimed.
	// +optional
	ResourceSelector []ResourceSelector `json:"resourceSelector,omitempty"`

	// identityHash is the identity hash of the resource if it is exported by another APIExport. Empty for built-in
	// resources.
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
}

// EqualGRI reports whether both claims are for the same group, resource and identity.
func (p PermissionClaim) EqualGRI(other PermissionClaim) bool {
	return p.GroupResource == other.GroupResource && p.IdentityHash == other.IdentityHash
}

// ResourceSelector selects objects by name, by namespace, or by both.
//
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) || has(self.name)",message="at least one field must be set"
type ResourceSelector struct {
	// name is the name of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$`
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the objects.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace,omitempty"`
}

// AcceptablePermissionClaim is a permission claim that is accepted or rejected by the consumer.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// state indicates whether the claim is accepted or rejected.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// AcceptablePermissionClaimState indicates whether a permission claim is accepted or rejected.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type AcceptablePermissionClaimState string

const (
	// ClaimAccepted indicates that the claim is granted.
	ClaimAccepted AcceptablePermissionClaimState = "Accepted"
	// ClaimRejected indicates that the claim is not granted.
	ClaimRejected AcceptablePermissionClaimState = "Rejected"
)
