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

	// reason is the machine-readable reason for the state, or why it does not change.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a human-readable description of the reason.
	// +optional
	Message string `json:"message,omitempty"`

	// owner is the Workspace of the logical cluster, and parentShard the shard that has it. The origin reports both.
	// +optional
	Owner *corev1alpha1.LogicalClusterOwner `json:"owner,omitempty"`
	// +optional
	ParentShard string `json:"parentShard,omitempty"`

	// path is that of the logical cluster. The origin reports it.
	// +optional
	Path string `json:"path,omitempty"`

	// placement is whether the logical cluster may be placed on the destination. The shard of the Workspace reports it.
	// +optional
	Placement *MigrationPlacement `json:"placement,omitempty"`

	// children is what is to be moved below the logical cluster. The destination reports it once it serves the logical
	// cluster, if the migration includes children.
	// +optional
	Children *MigrationChildren `json:"children,omitempty"`
}

// MigrationPlacement reports whether a shard may have a logical cluster.
type MigrationPlacement struct {
	// allowed is whether all rules of placement hold.
	Allowed bool `json:"allowed"`

	// reason is the machine-readable name of the rule that does not hold, and message describes it and the next step.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// MigrationChildren reports which logical cluster below another one is to be moved.
type MigrationChildren struct {
	// next is the first logical cluster below that is on another shard; empty if there is none. The parent of each comes
	// before it.
	// +optional
	Next string `json:"next,omitempty"`

	// workspace is the path of its Workspace.
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
