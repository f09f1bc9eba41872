package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIExportEndpointSlice lists the URLs of the virtual workspaces of an APIExport: one for every shard with a consumer.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Export",type="string",JSONPath=".spec.export.name"
// +kubebuilder:printcolumn:name="Partition",type="string",JSONPath=".spec.partition"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type APIExportEndpointSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the export and the shards.
	// +optional
	Spec APIExportEndpointSliceSpec `json:"spec,omitempty"`

	// status holds the endpoints.
	// +optional
	Status APIExportEndpointSliceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *APIExportEndpointSlice) GetConditions() conditionsv1alpha1.Conditions {
	return in.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (in *APIExportEndpointSlice) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &APIExportEndpointSlice{}

// APIExportEndpointSliceSpec selects the export and the shards.
type APIExportEndpointSliceSpec struct {
	// export names the APIExport. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	APIExport ExportBindingReference `json:"export"`

	// partition names a Partition in the workspace of the slice, which selects the shards. If unset, all shards are listed.
	// +optional
	Partition string `json:"partition,omitempty"`
}

// APIExportEndpointSliceStatus holds the endpoints.
type APIExportEndpointSliceStatus struct {
	// conditions of the object.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// endpoints are the URLs of virtual workspaces.
	// +optional
	// +listType=map
	// +listMapKey=url
	APIExportEndpoints []APIExportEndpoint `json:"endpoints,omitempty"`

	// shardSelector is the label selector of the partition. Empty for all shards.
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// APIExportEndpoint is the endpoint of a virtual workspace.
type APIExportEndpoint struct {
	// url of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// shards are the shards that use this endpoint for resources with virtual storage. If unset, it is the shard of the
	// endpoint.
	// +optional
	Shards *ShardSet `json:"shards,omitempty"`
}

// ShardSet selects shards: all of them, or those whose labels match.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="matchAll and selector are mutually exclusive"
type ShardSet struct {
	// matchAll selects every shard.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`

	// selector is matched against the labels of Shards.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Condition types of APIExportEndpointSlices.
const (
	// APIExportValid: the export exists.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// PartitionValid: the partition exists and can be understood.
	PartitionValid conditionsv1alpha1.Type = "PartitionValid"
)

// Reasons of the conditions of APIExportEndpointSlices.
const (
	// APIExportNotFoundReason: there is no such export.
	APIExportNotFoundReason = "APIExportNotFound"
	// PartitionInvalidReferenceReason: there is no such partition.
	PartitionInvalidReferenceReason = "PartitionInvalidReference"
	// InternalErrorReason: something failed that the user cannot mend.
	InternalErrorReason = "InternalError"
)

// APIExportEndpointSliceList is a list of APIExportEndpointSlices.
//
// +kubebuilder:object:root=true
type APIExportEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []APIExportEndpointSlice `json:"items"`
}
