package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterReport reports the state of a logical cluster to the shard of its workspace, which is another one. The
// reporting shard publishes it in the logical cluster, under the name "<logical cluster of the workspace>.<name of the
// workspace>", while there is a LogicalClusterRequest or an unacknowledged change. A logical cluster without either has
// no report.
//
// +kubebuilder:object:root=true
type LogicalClusterReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterReportSpec `json:"spec"`
}

// LogicalClusterState is the state of a requested logical cluster.
type LogicalClusterState string

const (
	// LogicalClusterExists: it exists, and the report has its state.
	LogicalClusterExists LogicalClusterState = "Exists"
	// LogicalClusterGone: it does not exist, and will not be created.
	LogicalClusterGone LogicalClusterState = "Gone"
	// LogicalClusterRefused: the shard does not create it, for the reason in reason and message.
	LogicalClusterRefused LogicalClusterState = "Refused"
)

// Reasons of refusals.
const (
	// ReasonNameTaken requires another name.
	ReasonNameTaken = "NameTaken"
	// ReasonShardFull requires another shard.
	ReasonShardFull = "ShardFull"
)

// LogicalClusterReportSpec is the content of a report.
type LogicalClusterReportSpec struct {
	// owner is the workspace that the report is for.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	State LogicalClusterState `json:"state"`

	// shard is the shard of the workspace, which made the request and to which the report is addressed.
	Shard string `json:"shard"`

	// reason and message are those of a refusal.
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
