package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// PartitionSet generates Partitions in its workspace, one for each combination of values of the dimension labels of
// shards.
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

	// spec is the desired state of the partition set.
	// +required
	Spec PartitionSetSpec `json:"spec"`

	// status is the observed state of the partition set.
	// +optional
	Status PartitionSetStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (p *PartitionSet) GetConditions() conditionsv1alpha1.Conditions { return p.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (p *PartitionSet) SetConditions(conditions conditionsv1alpha1.Conditions) {
	p.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &PartitionSet{}

// PartitionSetSpec describes the desired state of a PartitionSet.
type PartitionSetSpec struct {
	// dimensions are the label keys by whose values shards are grouped into partitions. Shards without one of these
	// labels are not part of any partition of the set.
	// +optional
	Dimensions []string `json:"dimensions,omitempty"`

	// shardSelector is a label selector for the shards that are partitioned. If unset, all shards are selected.
	// +optional
	ShardSelector *metav1.LabelSelector `json:"shardSelector,omitempty"`
}

// PartitionSetStatus describes the observed state of a PartitionSet.
type PartitionSetStatus struct {
	// count is the desired number of partitions of the set.
	// +optional
	Count uint16 `json:"count,omitempty"`

	// conditions are the current conditions of the partition set.
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
