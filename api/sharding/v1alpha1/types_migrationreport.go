package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// LogicalClusterMigrationReport reports what a shard has done for a LogicalClusterMigration to the shard that stores the
// migration. It is published by the origin, by the destination and by the shard of the Workspace of the logical cluster, in
// the logical cluster of the migration and under its name. These shards may coincide.
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

	// state is what the shard has done. It is empty if the shard is neither origin nor destination.
	// +optional
	State LogicalClusterMigrationState `json:"state,omitempty"`

	// entries is the number of objects that the destination has copied.
	// +optional
	Entries int64 `json:"entries,omitempty"`

	// reason is the machine-readable reason for the state, or for which it does not change.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a human-readable description of the reason.
	// +optional
	Message string `json:"message,omitempty"`

	// owner is a reference to the Workspace of the logical cluster. The origin reports it.
	// +optional
	Owner *corev1alpha1.LogicalClusterOwner `json:"owner,omitempty"`
	// parentShard is the name of the shard with that Workspace. The origin reports it.
	// +optional
	ParentShard string `json:"parentShard,omitempty"`

	// path is the path of the logical cluster. The origin reports it.
	// +optional
	Path string `json:"path,omitempty"`

	// placement reports whether the logical cluster may be placed on the destination. The shard of the Workspace
	// reports it.
	// +optional
	Placement *MigrationPlacement `json:"placement,omitempty"`

	// children reports which logical cluster below this one is to be moved next. The destination reports it once it
	// serves the logical cluster, if the migration includes children.
	// +optional
	Children *MigrationChildren `json:"children,omitempty"`
}

// MigrationPlacement reports whether a shard may have a logical cluster.
type MigrationPlacement struct {
	// allowed indicates that all rules of placement are satisfied.
	Allowed bool `json:"allowed"`

	// reason is the machine-readable name of the rule that is not satisfied.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a human-readable description of that rule and of the next step.
	// +optional
	Message string `json:"message,omitempty"`
}

// MigrationChildren reports which logical cluster below another one is to be moved.
type MigrationChildren struct {
	// next is the name of the first logical cluster below that is on another shard, parents before children. Empty if
	// there is none.
	// +optional
	Next string `json:"next,omitempty"`

	// workspace is the path of the Workspace of that logical cluster.
	// +optional
	Workspace string `json:"workspace,omitempty"`
}

// LogicalClusterMigrationReportList is a list of LogicalClusterMigrationReports.
//
// +kubebuilder:object:root=true
type LogicalClusterMigrationReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterMigrationReport `json:"items"`
}
