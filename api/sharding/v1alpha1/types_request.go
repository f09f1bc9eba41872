package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterRequest asks one shard to have a logical cluster for a workspace, to tell about it, or to have it no more.
// The shard of the workspace publishes it in the workspace's logical cluster, under the name
// "<name of the workspace>.<name of the logical cluster>", and takes it back when the answer is in the workspace: none
// stands for a workspace that has settled.
//
// +kubebuilder:object:root=true
type LogicalClusterRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterRequestSpec `json:"spec"`
}

// LogicalClusterRequestSpec is what is asked for. A request with a template asks for a new logical cluster, one with
// delete for the end of it, any other for a report.
type LogicalClusterRequestSpec struct {
	// shard is the name of the shard that is asked.
	Shard string `json:"shard"`

	// cluster is the name of the logical cluster.
	Cluster string `json:"cluster"`

	// owner is the workspace. A logical cluster of another owner is neither given nor deleted.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	// confirmed is the UID of the LogicalCluster that the workspace leads to. A logical cluster that was made for a
	// workspace of another shard becomes ready only when it is confirmed: one that was made because of an old request
	// belongs to nobody.
	// +optional
	Confirmed types.UID `json:"confirmed,omitempty"`

	// delete asks for the end of the logical cluster. It is final: no logical cluster of that name is wanted again.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// annotations of the new LogicalCluster: type, path, owner, required groups. Others are ignored.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// template is the specification of the new LogicalCluster; nil where none is asked for.
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
