package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// PartitionSet generates one Partition beside it for every combination of values that shards have in some labels.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Count",type=string,JSONPath=`.status.count`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type PartitionSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which shards are divided, and by what.
	// +required
	Spec PartitionSetSpec `json:"spec"`

	// status is what became of it.
	// +optional
	Status PartitionSetStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *PartitionSet) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *PartitionSet) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &PartitionSet{}

// PartitionSetSpec says which shards are divided, and by what.
type PartitionSetSpec struct {
	// dimensions are the keys of the labels whose values divide the shards. A shard without one of them belongs to no
	// partition of the set.
	// +optional
	Dimensions []string `json:"dimensions,omitempty"`

	// shardSelector selects the shards that are divided. Without it, all are.
	// +optional
	ShardSelector *metav1.LabelSelector `json:"shardSelector,omitempty"`
}

// PartitionSetStatus is what became of a PartitionSet.
type PartitionSetStatus struct {
	// count is the number of partitions that the set asks for.
	// +optional
	Count uint16 `json:"count,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// PartitionSetList is a list of PartitionSets.
//
// +kubebuilder:object:root=true
type PartitionSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PartitionSet `json:"items"`
}
