package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterRequest requests the creation, a report or the deletion of the logical cluster of a workspace from
// another shard. It is published by the shard of the workspace in the logical cluster that contains the Workspace
// object, under the name "<name of the workspace>.<name of the logical cluster>". It is deleted when the result is
// written to the workspace. A workspace that is Ready has no LogicalClusterRequest.
//
// +kubebuilder:object:root=true
type LogicalClusterRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterRequestSpec `json:"spec"`
}

// LogicalClusterRequestSpec describes a request. If template is set, the creation of the logical cluster is requested.
// If delete is true, its deletion is requested. Otherwise, a report is requested.
type LogicalClusterRequestSpec struct {
	// shard is the name of the requested shard.
	Shard string `json:"shard"`

	// cluster is the name of the logical cluster.
	Cluster string `json:"cluster"`

	// owner is a reference to the workspace. A logical cluster of another owner is neither reported nor deleted.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	// confirmed is the UID of the LogicalCluster of the workspace. A logical cluster that was created for a workspace
	// of another shard becomes ready only when it is confirmed, because a logical cluster that was created for an
	// outdated request has no workspace. If the requested shard has handed over the logical cluster, it confirms that the
	// workspace names the other shard.
	// +optional
	Confirmed types.UID `json:"confirmed,omitempty"`

	// delete requests the deletion of the logical cluster. The deletion is final: the name is not used again.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// annotations contains the annotations of the new LogicalCluster: type, path, owner and required groups. Other
	// annotations are ignored.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// template is the spec of the new LogicalCluster. Unset if no creation is requested.
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
