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

	// spec is the desired state of the migration.
	// +optional
	Spec LogicalClusterMigrationSpec `json:"spec,omitempty"`

	// status is the observed state of the migration.
	// +optional
	Status LogicalClusterMigrationStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (l *LogicalClusterMigration) GetConditions() conditionsv1alpha1.Conditions {
	return l.Status.Conditions
}

// SetConditions replaces the conditions of the status.
func (l *LogicalClusterMigration) SetConditions(conditions conditionsv1alpha1.Conditions) {
	l.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &LogicalClusterMigration{}

// LogicalClusterMigrationSpec describes the desired state of a LogicalClusterMigration.
type LogicalClusterMigrationSpec struct {
	// logicalCluster is the name of the logical cluster to migrate.
	// +required
	// +kubebuilder:validation:MinLength=1
	LogicalCluster string `json:"logicalCluster"`

	// destinationShard is the name of the shard to which the logical cluster is migrated.
	// +required
	// +kubebuilder:validation:MinLength=1
	DestinationShard string `json:"destinationShard"`
}

// LogicalClusterMigrationStatus describes the observed state of a LogicalClusterMigration.
type LogicalClusterMigrationStatus struct {
	// phase is the current phase of the migration. Defaults to Preparing.
	// +optional
	// +kubebuilder:default=Preparing
	Phase LogicalClusterMigrationPhaseType `json:"phase,omitempty"`

	// originShard is the name of the shard from which the logical cluster is migrated.
	// +optional
	OriginShard string `json:"originShard,omitempty"`

	// dumpContinue is the token for resuming the copy after an interruption.
	// +optional
	DumpContinue string `json:"dumpContinue,omitempty"`

	// entriesCopied is the number of objects written to the destination shard.
	// +optional
	EntriesCopied int64 `json:"entriesCopied,omitempty"`

	// conditions are the current conditions of the migration.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// LogicalClusterMigrationPhaseType is the phase of a migration.
//
// +kubebuilder:validation:Enum=Preparing;Migrating;OriginCleanup;DestinationFinalize;Aborting;Completed;Failed
type LogicalClusterMigrationPhaseType string

const (
	// LogicalClusterMigrationPhasePreparing means that the origin shard has not yet stopped serving the logical
	// cluster.
	LogicalClusterMigrationPhasePreparing LogicalClusterMigrationPhaseType = "Preparing"
	// LogicalClusterMigrationPhaseMigrating means that the content is being copied to the destination shard.
	LogicalClusterMigrationPhaseMigrating LogicalClusterMigrationPhaseType = "Migrating"
	// LogicalClusterMigrationPhaseOriginCleanup means that the content is being removed from the origin shard.
	LogicalClusterMigrationPhaseOriginCleanup LogicalClusterMigrationPhaseType = "OriginCleanup"
	// LogicalClusterMigrationPhaseDestinationFinalize means that the destination shard is being prepared to serve the
	// logical cluster.
	LogicalClusterMigrationPhaseDestinationFinalize LogicalClusterMigrationPhaseType = "DestinationFinalize"
	// LogicalClusterMigrationPhaseAborting means that the migration has been given up, and that both shards remove what it
	// has left. The logical cluster stays on the origin shard.
	LogicalClusterMigrationPhaseAborting LogicalClusterMigrationPhaseType = "Aborting"
	// LogicalClusterMigrationPhaseCompleted means that the migration has completed successfully.
	LogicalClusterMigrationPhaseCompleted LogicalClusterMigrationPhaseType = "Completed"
	// LogicalClusterMigrationPhaseFailed means that the migration has failed.
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
