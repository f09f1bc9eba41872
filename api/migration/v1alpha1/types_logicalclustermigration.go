package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// LogicalClusterMigration moves a logical cluster to another shard.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Logical Cluster",type=string,JSONPath=`.spec.logicalCluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Destination",type=string,JSONPath=`.spec.destinationShard`
// +kubebuilder:printcolumn:name="Entries Copied",type=integer,JSONPath=`.status.entriesCopied`
type LogicalClusterMigration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what moves where.
	// +optional
	Spec LogicalClusterMigrationSpec `json:"spec,omitempty"`

	// status is how far it is.
	// +optional
	Status LogicalClusterMigrationStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *LogicalClusterMigration) GetConditions() conditionsv1alpha1.Conditions {
	return in.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (in *LogicalClusterMigration) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &LogicalClusterMigration{}

// LogicalClusterMigrationSpec says what moves where.
type LogicalClusterMigrationSpec struct {
	// logicalCluster is the name of the logical cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	LogicalCluster string `json:"logicalCluster"`

	// destinationShard is the name of the shard that it moves to.
	// +required
	// +kubebuilder:validation:MinLength=1
	DestinationShard string `json:"destinationShard"`
}

// LogicalClusterMigrationStatus is how far a migration is.
type LogicalClusterMigrationStatus struct {
	// phase is the step that is under way.
	// +optional
	// +kubebuilder:default=Preparing
	Phase LogicalClusterMigrationPhaseType `json:"phase,omitempty"`

	// originShard is the name of the shard that held the logical cluster in the beginning.
	// +optional
	OriginShard string `json:"originShard,omitempty"`

	// dumpContinue is where copying goes on after an interruption.
	// +optional
	DumpContinue string `json:"dumpContinue,omitempty"`

	// entriesCopied is how many objects the destination has written.
	// +optional
	EntriesCopied int64 `json:"entriesCopied,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// LogicalClusterMigrationPhaseType is a step of a migration.
//
// +kubebuilder:validation:Enum=Preparing;Migrating;OriginCleanup;DestinationFinalize;Completed;Failed
type LogicalClusterMigrationPhaseType string

const (
	// LogicalClusterMigrationPhasePreparing waits for the origin to stop serving the logical cluster.
	LogicalClusterMigrationPhasePreparing LogicalClusterMigrationPhaseType = "Preparing"
	// LogicalClusterMigrationPhaseMigrating copies the content.
	LogicalClusterMigrationPhaseMigrating LogicalClusterMigrationPhaseType = "Migrating"
	// LogicalClusterMigrationPhaseOriginCleanup removes the content from the origin.
	LogicalClusterMigrationPhaseOriginCleanup LogicalClusterMigrationPhaseType = "OriginCleanup"
	// LogicalClusterMigrationPhaseDestinationFinalize makes the destination serve the logical cluster.
	LogicalClusterMigrationPhaseDestinationFinalize LogicalClusterMigrationPhaseType = "DestinationFinalize"
	// LogicalClusterMigrationPhaseCompleted is the end.
	LogicalClusterMigrationPhaseCompleted LogicalClusterMigrationPhaseType = "Completed"
	// LogicalClusterMigrationPhaseFailed is the other end.
	LogicalClusterMigrationPhaseFailed LogicalClusterMigrationPhaseType = "Failed"
)

// LogicalClusterMigrationList is a list of LogicalClusterMigrations.
//
// +kubebuilder:object:root=true
type LogicalClusterMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterMigration `json:"items"`
}
