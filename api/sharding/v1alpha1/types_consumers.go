package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExportConsumers reports that a shard has APIBindings of an APIExport. It is published by the shard in the logical
// cluster of the APIExport, under the name of the APIExport, while there is at least one APIBinding. The endpoints in
// endpoint slices of the APIExport are derived from it by the shard of the endpoint slice.
//
// +kubebuilder:object:root=true
type ExportConsumers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// ExportConsumersList is a list of ExportConsumers.
//
// +kubebuilder:object:root=true
type ExportConsumersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportConsumers `json:"items"`
}
