package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Partition names a part of the shards of an installation, so that endpoint slices can be made for that part alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.metadata.ownerReferences[*].name`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Partition struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which shards belong to the partition.
	// +required
	Spec PartitionSpec `json:"spec"`
}

// PartitionSpec says which shards belong to a partition.
type PartitionSpec struct {
	// selector selects shards by their labels. Without it, all shards belong to the partition.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// PartitionList is a list of Partitions.
//
// +kubebuilder:object:root=true
type PartitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Partition `json:"items"`
}
