package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ShardReport is the heartbeat of a shard. It is published in the logical cluster "root" under the shard's name, every few
// seconds. The root shard copies it into the status of the Shard object; every shard chooses by it where new workspaces
// go. Who reads it judges its age by when a change of spec.beat arrived, never by the clock of the writer.
//
// +kubebuilder:object:root=true
type ShardReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShardReportSpec `json:"spec"`
}

// ShardReportSpec is what a shard says of itself.
type ShardReportSpec struct {
	// beat changes with every heartbeat.
	Beat int64 `json:"beat"`

	// complete says that everything the shard publishes stands in this cache. A cache that lost its objects has lost the
	// report with them: until it is back and complete, nobody takes the absence of an object for its end.
	Complete bool `json:"complete,omitempty"`

	// capacity is how much the shard is allowed to hold, load how much it holds: "logicalclusters", "objects", "memory"
	// (bytes). What has no bound has no capacity.
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
