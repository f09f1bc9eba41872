package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterRequest asks one shard to have a logical cluster for a workspace, or to have it no more. The shard of the
// workspace publishes it in the workspace's logical cluster, under the name of the logical cluster it asks for, and takes
// it back when the answer is in the workspace: none stands for a workspace that has settled.
//
// +kubebuilder:object:root=true
type LogicalClusterRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterRequestSpec `json:"spec"`
}

// LogicalClusterRequestSpec is what is asked for.
type LogicalClusterRequestSpec struct {
	// shard is the name of the shard that is asked.
	Shard string `json:"shard"`

	// owner is the workspace. A logical cluster of another owner is neither given nor deleted.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	// delete asks for the end of the logical cluster instead.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// annotations of the new LogicalCluster: type, path, owner, required groups, locks.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// template is the specification of the new LogicalCluster; nil where delete is set.
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
