package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ClusterCachedResourceEndpointSlice lists the URLs at which the objects of a ClusterCachedResource are served to the
// consumers of an APIExport.
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

	// spec describes the desired state of the ClusterCachedResourceEndpointSlice.
	// +optional
	Spec ClusterCachedResourceEndpointSliceSpec `json:"spec,omitempty"`

	// status describes the observed state of the ClusterCachedResourceEndpointSlice.
	// +optional
	Status ClusterCachedResourceEndpointSliceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (c *ClusterCachedResourceEndpointSlice) GetConditions() conditionsv1alpha1.Conditions {
	return c.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (c *ClusterCachedResourceEndpointSlice) SetConditions(conditions conditionsv1alpha1.Conditions) {
	c.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &ClusterCachedResourceEndpointSlice{}

// ClusterCachedResourceEndpointSliceSpec describes the desired state of a ClusterCachedResourceEndpointSlice.
type ClusterCachedResourceEndpointSliceSpec struct {
	// clusterCachedResource is a reference to the ClusterCachedResource whose objects are served. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterCachedResource reference must not be changed"
	ClusterCachedResource ClusterCachedResourceReference `json:"clusterCachedResource"`

	// export is a reference to the APIExport to whose consumers the objects are served. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	APIExport ExportBindingReference `json:"export"`

	// partition is the name of a Partition in the workspace of the ClusterCachedResourceEndpointSlice. Endpoints are
	// listed for the shards that are selected by the Partition. If unset, endpoints are listed for all shards.
	// +optional
	Partition string `json:"partition,omitempty"`
}

// ClusterCachedResourceReference is a reference to a ClusterCachedResource.
type ClusterCachedResourceReference struct {
	// path is the path or cluster name of the workspace that contains the ClusterCachedResource. Defaults to the
	// workspace of the referring object.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name is the name of the ClusterCachedResource.
	// +required
	Name string `json:"name"`
}

// ExportBindingReference is a reference to an APIExport.
type ExportBindingReference struct {
	// path is the path or cluster name of the workspace that contains the APIExport. Defaults to the workspace of the
	// referring object.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`

	// name is the name of the APIExport.
	// +required
	Name string `json:"name"`
}

// ClusterCachedResourceEndpointSliceStatus describes the observed state of a ClusterCachedResourceEndpointSlice.
type ClusterCachedResourceEndpointSliceStatus struct {
	// conditions is the list of current conditions of the ClusterCachedResourceEndpointSlice.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// endpoints is the list of endpoints, at most one for each shard.
	// +optional
	// +listType=map
	// +listMapKey=url
	Endpoints []ClusterCachedResourceEndpoint `json:"endpoints,omitempty"`

	// shardSelector is the label selector of the Partition as a string. If empty, all shards are selected.
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// ClusterCachedResourceEndpoint describes the endpoint of a shard.
type ClusterCachedResourceEndpoint struct {
	// url is the URL of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// shards selects the shards whose consumers use this endpoint.
	// +optional
	Shards *ShardSet `json:"shards,omitempty"`
}

// ShardSet selects either all shards or shards by label.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="either matchAll or selector must be set"
type ShardSet struct {
	// matchAll selects all shards.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`

	// selector selects shards by the labels of the Shard objects.
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
