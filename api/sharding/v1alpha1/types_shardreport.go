package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ShardReport is the heartbeat of a shard. It is published in the logical cluster "root" under the shard's name, every
// few seconds. The root shard copies it into the status of the Shard object; every shard selects the shard of new
// workspaces by it. Readers measure its age from when they observed a change of spec.beat, not by the clock of the
// writer.
//
// +kubebuilder:object:root=true
type ShardReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShardReportSpec `json:"spec"`
}

// ShardReportSpec is the state of a shard.
type ShardReportSpec struct {
	// beat changes with every heartbeat.
	Beat int64 `json:"beat"`

	// complete is true once everything that the shard publishes is in this cache. A cache that lost its objects has
	// lost the report with them: until it is back and complete, missing objects are not treated as deleted.
	Complete bool `json:"complete,omitempty"`

	// capacity is the limit of the shard, load its usage: "logicalclusters", "objects", "memory"
	// (bytes). A resource without a limit has no capacity.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// +optional
	Load corev1.ResourceList `json:"load,omitempty"`

	// conditions are "Ready" and "Schedulable", with the reason where they are false.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// ShardReportList is a list of ShardReports.
//
// +kubebuilder:object:root=true
type ShardReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShardReport `json:"items"`
}
