package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ShardReport is the heartbeat of a shard. It is published every few seconds in the logical cluster "root" under the
// name of the shard. It is copied to the status of the Shard object by the root shard, and used by all shards to select
// the shard of new workspaces. Its age is measured by readers from the last observed change of spec.beat, not by the
// clock of the writer.
//
// +kubebuilder:object:root=true
type ShardReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShardReportSpec `json:"spec"`
}

// ShardReportSpec describes the reported state of a shard.
type ShardReportSpec struct {
	// beat changes with every heartbeat.
	Beat int64 `json:"beat"`

	// complete indicates that all published objects of the shard are in this cache. If a cache loses its objects, it
	// also loses the report. Missing objects are not treated as deleted until the report exists again and is complete.
	Complete bool `json:"complete,omitempty"`

	// capacity contains the limits of the shard for the resources "logicalclusters", "objects" and "memory" (bytes).
	// Resources without a limit are not listed.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// load contains the current usage of the resources "logicalclusters", "objects" and "memory" (bytes).
	// +optional
	Load corev1.ResourceList `json:"load,omitempty"`
	// used contains what the limits of the Shard count: "workspaces", all logical clusters of the shard.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`

	// conditions contains the conditions "Ready" and "Schedulable", with a reason if they are False.
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
