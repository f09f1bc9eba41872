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

// PermissionClaim is a resource of consuming workspaces that a provider wants to do everything with.
//
// +kubebuilder:validation:XValidation:rule="(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",message="either \"all\" or \"resourceSelector\" must be set"
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// all claims every object.
	// +optional
	All bool `json:"all,omitempty"`

	// resourceSelector claims some objects. It is kept, but all objects are claimed nevertheless.
	// +optional
	ResourceSelector []ResourceSelector `json:"resourceSelector,omitempty"`

	// identityHash is the identity of the resource where another export offers it. It is empty for resources that every
	// workspace has by itself.
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
}

// EqualGRI tells whether both are about the same resource: same group, name and identity.
func (p PermissionClaim) EqualGRI(other PermissionClaim) bool {
	return p.GroupResource == other.GroupResource && p.IdentityHash == other.IdentityHash
}

// ResourceSelector chooses objects by name, by namespace, or by both.
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

// AcceptablePermissionClaim is a claim with the consumer's answer.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// state is the answer.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// AcceptablePermissionClaimState is a consumer's answer to a claim.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type AcceptablePermissionClaimState string

const (
	// ClaimAccepted lets the provider do what it claims.
	ClaimAccepted AcceptablePermissionClaimState = "Accepted"
	// ClaimRejected does not.
	ClaimRejected AcceptablePermissionClaimState = "Rejected"
)
