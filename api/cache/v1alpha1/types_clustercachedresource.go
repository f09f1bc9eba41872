package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ClusterCachedResource copies the objects of one cluster-scoped resource of its workspace to the cache, where all shards
// can read them. There is one for a resource and workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Resource",type="string",JSONPath=".spec.resource"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterCachedResource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is copied.
	// +required
	Spec ClusterCachedResourceSpec `json:"spec"`

	// status is what became of it.
	// +optional
	Status ClusterCachedResourceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *ClusterCachedResource) GetConditions() conditionsv1alpha1.Conditions {
	return in.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (in *ClusterCachedResource) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &ClusterCachedResource{}

// ClusterCachedResourceSpec says what is copied to the cache.
type ClusterCachedResourceSpec struct {
	// The resource.
	GroupVersionResource `json:",inline"`

	// identity refers to the secret that proves who offers the resource. The system fills it in.
	// +optional
	Identity *Identity `json:"identity,omitempty"`

	// labelSelector selects the objects that are copied; only matchLabels counts. Without it, all are.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// GroupVersionResource names a resource in one version.
type GroupVersionResource struct {
	// group of the resource; empty for the core group.
	// +optional
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group,omitempty"`

	// version of the resource.
	// +optional
	Version string `json:"version,omitempty"`

	// resource is its plural name.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
}

// Identity refers to the secret of an identity.
type Identity struct {
	// secretRef refers to a secret with the data key "key".
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// ClusterCachedResourceStatus is what became of a ClusterCachedResource.
type ClusterCachedResourceStatus struct {
	// identityHash is the SHA-256 of the secret's key, in hexadecimal.
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`

	// resourceCounts are the numbers of objects.
	// +optional
	ResourceCounts *ResourceCount `json:"resourceCounts,omitempty"`

	// phase says how far it is.
	// +optional
	// +kubebuilder:default=Initializing
	Phase ClusterCachedResourcePhaseType `json:"phase,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// ResourceCount compares the objects of the workspace with those in the cache.
type ResourceCount struct {
	// cache is how many objects the cache has.
	// +required
	Cache int `json:"cache"`

	// local is how many objects the workspace has.
	// +required
	Local int `json:"local"`
}

// ClusterCachedResourcePhaseType says how far a ClusterCachedResource is.
//
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Deleting;Deleted
type ClusterCachedResourcePhaseType string

const (
	// ClusterCachedResourcePhaseScheduling comes before everything.
	ClusterCachedResourcePhaseScheduling ClusterCachedResourcePhaseType = "Scheduling"
	// ClusterCachedResourcePhaseInitializing lasts until copying has begun.
	ClusterCachedResourcePhaseInitializing ClusterCachedResourcePhaseType = "Initializing"
	// ClusterCachedResourcePhaseReady means that objects are copied.
	ClusterCachedResourcePhaseReady ClusterCachedResourcePhaseType = "Ready"
	// ClusterCachedResourcePhaseDeleting means that the copies are being removed.
	ClusterCachedResourcePhaseDeleting ClusterCachedResourcePhaseType = "Deleting"
	// ClusterCachedResourcePhaseDeleted means that no copy is left.
	ClusterCachedResourcePhaseDeleted ClusterCachedResourcePhaseType = "Deleted"
)

// ClusterCachedResourceList is a list of ClusterCachedResources.
//
// +kubebuilder:object:root=true
type ClusterCachedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterCachedResource `json:"items"`
}
