package v1alpha1

// GroupResource names a resource.
type GroupResource struct {
	// group of the resource, empty for the core group.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group,omitempty"`

	// resource is its name, in plural.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// PermissionClaim requests full access to a resource in consuming workspaces.
//
// +kubebuilder:validation:XValidation:rule="(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",message="either \"all\" or \"resourceSelector\" must be set"
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// all claims every object.
	// +optional
	All bool `json:"all,omitempty"`

	// resourceSelector claims some objects. It is stored but ignored: all objects are claimed.
	// +optional
	ResourceSelector []ResourceSelector `json:"resourceSelector,omitempty"`

	// identityHash is the identity hash of the resource if another export offers it. It is empty for built-in resources.
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
	// name of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$`
	Name string `json:"name,omitempty"`

	// namespace of the objects.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace,omitempty"`
}

// AcceptablePermissionClaim is a claim that the consumer accepts or rejects.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// state is whether the claim is accepted or rejected.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// AcceptablePermissionClaimState is whether a claim is accepted or rejected.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type AcceptablePermissionClaimState string

const (
	// ClaimAccepted grants the claim.
	ClaimAccepted AcceptablePermissionClaimState = "Accepted"
	// ClaimRejected does not grant the claim.
	ClaimRejected AcceptablePermissionClaimState = "Rejected"
)
