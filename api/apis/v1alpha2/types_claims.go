package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupResource names a resource.
type GroupResource struct {
	// group of the resource, empty for the core group.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group"`

	// resource is its name, in plural.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// PermissionClaim requests access to a resource in consuming workspaces.
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// verbs are Kubernetes API verbs, or "*" for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	Verbs []string `json:"verbs"`

	// identityHash is the identity hash of the resource if another export offers it. It is empty for built-in resources.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	IdentityHash string `json:"identityHash"`

	// defaultSelector is the selector of this claim in bindings that are created because of a workspace type.
	// +optional
	DefaultSelector *PermissionClaimSelector `json:"defaultSelector,omitempty"`
}

// EqualGRI reports whether both claims are for the same group, resource and identity.
func (p PermissionClaim) EqualGRI(other PermissionClaim) bool {
	return p.GroupResource == other.GroupResource && p.IdentityHash == other.IdentityHash
}

// PermissionClaimSelector selects objects: all of them, or those whose labels match.
//
// +structType=atomic
type PermissionClaimSelector struct {
	metav1.LabelSelector `json:",inline"`

	// matchAll selects every object.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
}

// ScopedPermissionClaim is a claim with an object selector.
type ScopedPermissionClaim struct {
	PermissionClaim `json:",inline"`

	// selector selects the objects.
	// +required
	Selector PermissionClaimSelector `json:"selector"`
}

// AcceptablePermissionClaim is a claim that the consumer accepts or rejects.
//
// It repeats the selector of ScopedPermissionClaim instead of embedding that: of structs that are inlined three deep,
// structured-merge-diff (v6.3.3) takes one field for another, and server-side apply would write nonsense.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// selector selects the objects.
	// +required
	Selector PermissionClaimSelector `json:"selector"`

	// state is whether the claim is accepted or rejected.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// Scoped returns the claim without its state.
func (p AcceptablePermissionClaim) Scoped() ScopedPermissionClaim {
	return ScopedPermissionClaim{PermissionClaim: p.PermissionClaim, Selector: p.Selector}
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
