package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ClusterCachedResourceEndpointSlice says where the objects of a ClusterCachedResource are served to the consumers of an
// export.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="ClusterCachedResource",type="string",JSONPath=".spec.clusterCachedResource.name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterCachedResourceEndpointSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is served, and for whom.
	// +optional
	Spec ClusterCachedResourceEndpointSliceSpec `json:"spec,omitempty"`

	// status is where.
	// +optional
	Status ClusterCachedResourceEndpointSliceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *ClusterCachedResourceEndpointSlice) GetConditions() conditionsv1alpha1.Conditions {
	return in.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (in *ClusterCachedResourceEndpointSlice) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &ClusterCachedResourceEndpointSlice{}

// ClusterCachedResourceEndpointSliceSpec says what is served, and for whom.
type ClusterCachedResourceEndpointSliceSpec struct {
	// clusterCachedResource is what is served.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterCachedResource reference must not be changed"
	ClusterCachedResource ClusterCachedResourceReference `json:"clusterCachedResource"`

	// export is what the consumers are bound to.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	APIExport ExportBindingReference `json:"export"`

	// partition names a Partition beside this slice. Without it, the slice is about all shards.
	// +optional
	Partition string `json:"partition,omitempty"`
}

// ClusterCachedResourceReference names a ClusterCachedResource.
type ClusterCachedResourceReference struct {
	// path, or cluster name, of its workspace. It defaults to the slice's own.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name of the ClusterCachedResource.
	// +required
	Name string `json:"name"`
}

// ExportBindingReference names an APIExport.
type ExportBindingReference struct {
	// path, or cluster name, of its workspace. It defaults to the slice's own.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name of the export.
	// +required
	Name string `json:"name"`
}

// ClusterCachedResourceEndpointSliceStatus is where the objects are served.
type ClusterCachedResourceEndpointSliceStatus struct {
	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// endpoints are the addresses, at most one for each shard.
	// +optional
	// +listType=map
	// +listMapKey=url
	Endpoints []ClusterCachedResourceEndpoint `json:"endpoints,omitempty"`

	// shardSelector is the selector of the partition as text. Empty, it selects all shards.
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// ClusterCachedResourceEndpoint is the address of one shard.
type ClusterCachedResourceEndpoint struct {
	// url of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// shards are those whose consumers shall use this address.
	// +optional
	Shards *ShardSet `json:"shards,omitempty"`
}

// ShardSet is either all shards, or those that a selector selects.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="either matchAll or selector must be set"
type ShardSet struct {
	// matchAll stands for all shards.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`

	// selector selects shards by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ClusterCachedResourceEndpointSliceList is a list of ClusterCachedResourceEndpointSlices.
//
// +kubebuilder:object:root=true
type ClusterCachedResourceEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterCachedResourceEndpointSlice `json:"items"`
}
