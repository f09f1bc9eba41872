package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkspaceCount reports how many Workspaces a shard stores in a logical cluster that limits them and in all below it. It
// is published by every shard that stores any, in that logical cluster, under the name of LogicalClusters. Every shard
// adds up the objects of all, to decide about its own new Workspaces.
//
// +kubebuilder:object:root=true
type WorkspaceCount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkspaceCountSpec `json:"spec"`
}

// WorkspaceCountSpec is the count of a shard.
type WorkspaceCountSpec struct {
	// workspaces is the number of Workspaces on the shard.
	Workspaces int64 `json:"workspaces"`
}

// WorkspaceCountList is a list of WorkspaceCounts.
//
// +kubebuilder:object:root=true
type WorkspaceCountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkspaceCount `json:"items"`
}
