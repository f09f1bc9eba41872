package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterReport tells the shard of a workspace about the logical cluster that it has on another shard. That
// shard publishes it in the logical cluster, under the name "<logical cluster of the workspace>.<name of the workspace>",
// as long as somebody asks for it (LogicalClusterRequest) or there is news: a settled logical cluster has none, and no
// report means that nothing has changed.
//
// +kubebuilder:object:root=true
type LogicalClusterReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterReportSpec `json:"spec"`
}

// LogicalClusterState says what became of a logical cluster that was asked for.
type LogicalClusterState string

const (
	// LogicalClusterExists says that it is there, and the report describes it.
	LogicalClusterExists LogicalClusterState = "Exists"
	// LogicalClusterGone says that there is none, and none will be made.
	LogicalClusterGone LogicalClusterState = "Gone"
	// LogicalClusterRefused says that the shard does not give it; reason and message say why.
	LogicalClusterRefused LogicalClusterState = "Refused"
)

// Reasons of refusals.
const (
	// ReasonNameTaken asks for another name.
	ReasonNameTaken = "NameTaken"
	// ReasonShardFull asks for another shard.
	ReasonShardFull = "ShardFull"
)

// LogicalClusterReportSpec is the answer.
type LogicalClusterReportSpec struct {
	// owner is the workspace that the report is for.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	State LogicalClusterState `json:"state"`

	// shard is the shard of the workspace, which made the request and to which the report is addressed.
	Shard string `json:"shard"`

	// reason and message explain a refusal.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`

	// uid is that of the LogicalCluster.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// deleting is set while the logical cluster is being deleted.
	// +optional
	Deleting bool `json:"deleting,omitempty"`

	// phase, initializers, terminators and conditions are those of the LogicalCluster.
	// +optional
	Phase corev1alpha1.LogicalClusterPhaseType `json:"phase,omitempty"`
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	// +optional
	Terminators []corev1alpha1.LogicalClusterTerminator `json:"terminators,omitempty"`
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// LogicalClusterReportList is a list of LogicalClusterReports.
//
// +kubebuilder:object:root=true
type LogicalClusterReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterReport `json:"items"`
}
