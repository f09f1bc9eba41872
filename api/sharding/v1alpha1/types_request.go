package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterRequest requests that a shard creates, reports or deletes the logical cluster of a workspace.
// The shard of the workspace publishes it in the workspace's logical cluster, under the name
// "<name of the workspace>.<name of the logical cluster>", and deletes it when the result is in the workspace: a
// workspace that is Ready has none.
//
// +kubebuilder:object:root=true
type LogicalClusterRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterRequestSpec `json:"spec"`
}

// LogicalClusterRequestSpec is the content of a request. One with a template requests a new logical cluster, one
// with delete its deletion, any other a report.
type LogicalClusterRequestSpec struct {
	// shard is the name of the requested shard.
	Shard string `json:"shard"`

	// cluster is the name of the logical cluster.
	Cluster string `json:"cluster"`

	// owner is the workspace. A logical cluster of another owner is neither reported nor deleted.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	// confirmed is the UID of the LogicalCluster of the workspace. A logical cluster that was created for a
	// workspace of another shard becomes ready only when it is confirmed: one that was created for an outdated request
	// has no workspace.
	// +optional
	Confirmed types.UID `json:"confirmed,omitempty"`

	// delete requests the deletion of the logical cluster. It is final: the name is not used again.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// annotations of the new LogicalCluster: type, path, owner, required groups. Others are ignored.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// template is the specification of the new LogicalCluster; nil if none is requested.
	// +optional
	Template *corev1alpha1.LogicalClusterSpec `json:"template,omitempty"`
}

// LogicalClusterRequestList is a list of LogicalClusterRequests.
//
// +kubebuilder:object:root=true
type LogicalClusterRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterRequest `json:"items"`
}
