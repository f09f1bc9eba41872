package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// APIExportEndpointSlice lists the URLs of the virtual workspaces of an APIExport, one for each shard with consumers.
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

	// spec describes the desired state of the APIExportEndpointSlice.
	// +optional
	Spec APIExportEndpointSliceSpec `json:"spec,omitempty"`

	// status describes the observed state of the APIExportEndpointSlice.
	// +optional
	Status APIExportEndpointSliceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (a *APIExportEndpointSlice) GetConditions() conditionsv1alpha1.Conditions {
	return a.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (a *APIExportEndpointSlice) SetConditions(conditions conditionsv1alpha1.Conditions) {
	a.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &APIExportEndpointSlice{}

// APIExportEndpointSliceSpec describes the desired state of an APIExportEndpointSlice.
type APIExportEndpointSliceSpec struct {
	// export is a reference to the APIExport. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="APIExport reference must not be changed"
	APIExport ExportBindingReference `json:"export"`

	// partition is the name of a Partition in the workspace of the APIExportEndpointSlice. Endpoints are listed for the
	// shards that are selected by the Partition. If unset, endpoints are listed for all shards.
	// +optional
	Partition string `json:"partition,omitempty"`
}

// APIExportEndpointSliceStatus describes the observed state of an APIExportEndpointSlice.
type APIExportEndpointSliceStatus struct {
	// conditions is the list of current conditions of the APIExportEndpointSlice.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// endpoints is the list of endpoints of the virtual workspaces.
	// +optional
	// +listType=map
	// +listMapKey=url
	APIExportEndpoints []APIExportEndpoint `json:"endpoints,omitempty"`

	// shardSelector is the label selector of the Partition as a string. If empty, all shards are selected.
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// APIExportEndpoint describes the endpoint of a virtual workspace.
type APIExportEndpoint struct {
	// url is the URL of the virtual workspace.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// shards selects the shards that use this endpoint for resources with virtual storage. Defaults to the shard of the
	// endpoint.
	// +optional
	Shards *ShardSet `json:"shards,omitempty"`
}

// ShardSet selects either all shards or shards by label.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="matchAll and selector are mutually exclusive"
type ShardSet struct {
	// matchAll selects all shards.
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`

	// selector selects shards by the labels of the Shard objects.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Condition types of APIExportEndpointSlices.
const (
	// APIExportValid indicates that the APIExport exists.
	APIExportValid conditionsv1alpha1.Type = "APIExportValid"
	// PartitionValid indicates that the Partition exists and is valid.
	PartitionValid conditionsv1alpha1.Type = "PartitionValid"
)

// Reasons of the conditions of APIExportEndpointSlices.
const (
	// APIExportNotFoundReason indicates that the APIExport does not exist.
	APIExportNotFoundReason = "APIExportNotFound"
	// PartitionInvalidReferenceReason indicates that the Partition does not exist.
	PartitionInvalidReferenceReason = "PartitionInvalidReference"
	// InternalErrorReason indicates an error that the user cannot resolve.
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
