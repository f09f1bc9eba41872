package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterReport reports the state of a logical cluster to the shard of its workspace, if that is another shard.
// It is published by the reporting shard in the reported logical cluster, under the name "<logical cluster of the
// Workspace object>.<name of the workspace>", while there is a LogicalClusterRequest or an unacknowledged change. A
// logical cluster without either has no LogicalClusterReport.
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
	// LogicalClusterExists indicates that the logical cluster exists. Its state is in the report.
	LogicalClusterExists LogicalClusterState = "Exists"
	// LogicalClusterGone indicates that the logical cluster does not exist and will not be created.
	LogicalClusterGone LogicalClusterState = "Gone"
	// LogicalClusterRefused indicates that the shard refuses to create the logical cluster. The reason is in the fields
	// reason and message.
	LogicalClusterRefused LogicalClusterState = "Refused"
)

// Reasons for the state Refused.
const (
	// ReasonNameTaken indicates that the name is reserved or already used. Another name is required.
	ReasonNameTaken = "NameTaken"
	// ReasonShardFull indicates that the shard is full. Another shard is required.
	ReasonShardFull = "ShardFull"
)

// LogicalClusterReportSpec describes the reported state of a logical cluster.
type LogicalClusterReportSpec struct {
	// owner is a reference to the workspace of the logical cluster.
	Owner corev1alpha1.LogicalClusterOwner `json:"owner"`

	// state is the state of the logical cluster.
	State LogicalClusterState `json:"state"`

	// shard is the name of the shard of the workspace. It is the origin of the request and the recipient of the report.
	Shard string `json:"shard"`

	// reason is the machine-readable reason for the state Refused.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a human-readable description of the state Refused.
	// +optional
	Message string `json:"message,omitempty"`

	// uid is the UID of the LogicalCluster.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// deleting indicates that the logical cluster is being deleted.
	// +optional
	Deleting bool `json:"deleting,omitempty"`

	// movedTo is the name of the shard to which the reporting shard has handed over the logical cluster.
	// +optional
	MovedTo string `json:"movedTo,omitempty"`

	// phase is the current phase of the LogicalCluster.
	// +optional
	Phase corev1alpha1.LogicalClusterPhaseType `json:"phase,omitempty"`
	// initializers is the list of initializers of the LogicalCluster.
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	// terminators is the list of terminators of the LogicalCluster.
	// +optional
	Terminators []corev1alpha1.LogicalClusterTerminator `json:"terminators,omitempty"`
	// conditions is the list of current conditions of the LogicalCluster.
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
