package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Partition defines a subset of the shards of an installation. Endpoint slices that reference it contain only these
// shards.
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

	// spec is the desired state of the partition.
	// +required
	Spec PartitionSpec `json:"spec"`
}

// PartitionSpec describes the desired state of a Partition.
type PartitionSpec struct {
	// selector is a label selector for the shards of the partition. If unset, all shards are selected.
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
