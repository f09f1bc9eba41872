package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExportConsumers reports that a shard has bindings to an export. The shard publishes it in the logical cluster of the
// export, under the name of the export, while there is at least one. The shard of an endpoint slice
// derives the addresses in the slice from it.
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
