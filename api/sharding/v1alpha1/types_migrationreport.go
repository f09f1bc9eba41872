package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LogicalClusterMigrationReport reports what a shard has done for a LogicalClusterMigration to the shard that stores the
// migration. It is published by the origin and by the destination of the migration, in the logical cluster of the
// migration and under its name.
//
// +kubebuilder:object:root=true
type LogicalClusterMigrationReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LogicalClusterMigrationReportSpec `json:"spec"`
}

// LogicalClusterMigrationState is what a shard has done for a migration.
type LogicalClusterMigrationState string

// The states of the origin, in their order. Accepted may become Aborted, MovedAway becomes Cleaned.
const (
	// MigrationRefused means that the origin does not migrate the logical cluster. The reason is in the fields reason and
	// message.
	MigrationRefused LogicalClusterMigrationState = "Refused"
	// MigrationAccepted means that the content can be copied.
	MigrationAccepted LogicalClusterMigrationState = "Accepted"
	// MigrationMovedAway means that the origin has handed over the logical cluster. This is final.
	MigrationMovedAway LogicalClusterMigrationState = "MovedAway"
	// MigrationCleaned means that the origin has no key of the logical cluster.
	MigrationCleaned LogicalClusterMigrationState = "Cleaned"
	// MigrationAborted means that the origin has given up the migration before it handed over, or that the logical cluster
	// was deleted.
	MigrationAborted LogicalClusterMigrationState = "Aborted"
)

// The states of the destination, in their order.
const (
	// MigrationCopying means that the destination copies the content.
	MigrationCopying LogicalClusterMigrationState = "Copying"
	// MigrationServing means that the destination serves the logical cluster.
	MigrationServing LogicalClusterMigrationState = "Serving"
	// MigrationFinished means that the destination has finished the migration.
	MigrationFinished LogicalClusterMigrationState = "Finished"
	// MigrationDropped means that the destination has removed what it had copied for an aborted migration.
	MigrationDropped LogicalClusterMigrationState = "Dropped"
)

// LogicalClusterMigrationReportSpec describes what a shard has done for a migration.
type LogicalClusterMigrationReportSpec struct {
	// migration is the UID of the LogicalClusterMigration.
	Migration types.UID `json:"migration"`

	// state is what the shard has done.
	State LogicalClusterMigrationState `json:"state"`

	// entries is the number of objects that the destination has copied.
	// +optional
	Entries int64 `json:"entries,omitempty"`

	// reason is the machine-readable reason for the state, or why it does not change.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a human-readable description of the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// LogicalClusterMigrationReportList is a list of LogicalClusterMigrationReports.
//
// +kubebuilder:object:root=true
type LogicalClusterMigrationReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterMigrationReport `json:"items"`
}
