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

// PermissionClaim is what a provider wants to do with a resource in consuming workspaces.
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// verbs are those of Kubernetes, or "*" for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	Verbs []string `json:"verbs"`

	// identityHash is the identity of the resource where another export offers it. It is empty for resources that every
	// workspace has by itself.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	IdentityHash string `json:"identityHash"`

	// defaultSelector is the selector of this claim in bindings that workspace types make.
	// +optional
	DefaultSelector *PermissionClaimSelector `json:"defaultSelector,omitempty"`
}

// EqualGRI tells whether both are about the same resource: same group, name and identity.
func (p PermissionClaim) EqualGRI(other PermissionClaim) bool {
	return p.GroupResource == other.GroupResource && p.IdentityHash == other.IdentityHash
}

// PermissionClaimSelector chooses objects: all of them, or those whose labels match.
//
// +structType=atomic
type PermissionClaimSelector struct {
	metav1.LabelSelector `json:",inline"`

	// matchAll chooses every object.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
}

// ScopedPermissionClaim is a claim with the objects that it is for.
type ScopedPermissionClaim struct {
	PermissionClaim `json:",inline"`

	// selector chooses the objects.
	// +required
	Selector PermissionClaimSelector `json:"selector"`
}

// AcceptablePermissionClaim is a claim with the consumer's answer.
//
// It repeats the selector of ScopedPermissionClaim instead of embedding that: of structs that are inlined three deep,
// structured-merge-diff (v6.3.3) takes one field for another, and server-side apply would write nonsense.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// selector chooses the objects.
	// +required
	Selector PermissionClaimSelector `json:"selector"`

	// state is the answer.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// Scoped returns the claim without the answer.
func (p AcceptablePermissionClaim) Scoped() ScopedPermissionClaim {
	return ScopedPermissionClaim{PermissionClaim: p.PermissionClaim, Selector: p.Selector}
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
