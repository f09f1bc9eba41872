package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PermissionClaimPolicy permits exports to claim resources of other exports without an identity hash, and reserves the API groups that it
// names for the exports of certain users.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type PermissionClaimPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what the policy permits and reserves.
	// +required
	Spec PermissionClaimPolicySpec `json:"spec"`
}

// PermissionClaimPolicySpec describes what a policy permits and reserves.
type PermissionClaimPolicySpec struct {
	// claims are the permitted claims, by the API group of those who claim.
	// +required
	// +listType=map
	// +listMapKey=claimer
	// +kubebuilder:validation:MinItems=1
	Claims []ClaimerGroups `json:"claims"`

	// providers are the users and groups that may export the API groups of this policy. If empty, no user may export
	// them.
	// +optional
	// +listType=atomic
	Providers []PolicySubject `json:"providers,omitempty"`
}

// ClaimerGroups permits exports of one API group to claim resources of others.
type ClaimerGroups struct {
	// claimer is the API group of a resource of the export that claims.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Claimer string `json:"claimer"`

	// groups are the API groups whose resources exports of the claimer may claim without an identity hash.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	Groups []string `json:"groups"`
}

// Kinds of subjects.
const (
	PolicySubjectUser  = "User"
	PolicySubjectGroup = "Group"
)

// PolicySubject is a user, or a group of users.
type PolicySubject struct {
	// kind is User or Group.
	// +required
	// +kubebuilder:validation:Enum=User;Group
	Kind string `json:"kind"`

	// name is the name of the user or group.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// PermissionClaimPolicyList is a list of PermissionClaimPolicies.
//
// +kubebuilder:object:root=true
type PermissionClaimPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PermissionClaimPolicy `json:"items"`
}
