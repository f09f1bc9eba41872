package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupResource identifies a resource by API group and name.
type GroupResource struct {
	// group is the API group of the resource. Empty for the core group.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group"`

	// resource is the plural name of the resource, or "<resource>/<subresource>".
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9](/[a-z][-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`
}

// PermissionClaim requests access to a resource in consuming workspaces. The claim of a subresource gives access to the
// subresource of those objects that an accepted claim of the resource gives access to.
type PermissionClaim struct {
	GroupResource `json:",inline"`

	// verbs is the list of claimed Kubernetes API verbs. "*" matches all verbs.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	Verbs []string `json:"verbs"`

	// identityHash is the identity hash of the resource if it is exported by another APIExport. Empty for built-in
	// resources.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	IdentityHash string `json:"identityHash"`

	// defaultSelector is the selector of the claim in APIBindings that are created because of a WorkspaceType.
	// +optional
	DefaultSelector *PermissionClaimSelector `json:"defaultSelector,omitempty"`
}

// EqualGRI reports whether both claims are for the same group, resource and identity.
func (p PermissionClaim) EqualGRI(other PermissionClaim) bool {
	return p.GroupResource == other.GroupResource && p.IdentityHash == other.IdentityHash
}

// PermissionClaimSelector selects either all objects or objects by label.
//
// +structType=atomic
type PermissionClaimSelector struct {
	metav1.LabelSelector `json:",inline"`

	// matchAll selects all objects.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
}

// ScopedPermissionClaim is a permission claim with an object selector.
type ScopedPermissionClaim struct {
	PermissionClaim `json:",inline"`

	// selector selects the claimed objects. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Permission claim selector is immutable"
	Selector PermissionClaimSelector `json:"selector"`
}

// AcceptablePermissionClaim is a permission claim that is accepted or rejected by the consumer.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`

	// The selector of ScopedPermissionClaim is repeated instead of embedding that type: structured-merge-diff (v6.3.3)
	// confuses fields of structs that are inlined three levels deep, which corrupts objects in server-side apply.

	// selector selects the claimed objects. Immutable. It selects nothing, or all objects, in the claim of a subresource.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Permission claim selector is immutable"
	Selector PermissionClaimSelector `json:"selector"`

	// state indicates whether the claim is accepted or rejected.
	// +required
	State AcceptablePermissionClaimState `json:"state"`
}

// Scoped returns the claim without its state.
func (p AcceptablePermissionClaim) Scoped() ScopedPermissionClaim {
	return ScopedPermissionClaim{PermissionClaim: p.PermissionClaim, Selector: p.Selector}
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
