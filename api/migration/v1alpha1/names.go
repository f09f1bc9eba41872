package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Condition types of LogicalClusterMigrations.
const (
	// OriginReady is True if the origin shard has stopped serving the logical cluster and its content can be read.
	OriginReady conditionsv1alpha1.Type = "OriginReady"
	// DataCopied is True if all objects have been copied to the destination shard.
	DataCopied conditionsv1alpha1.Type = "DataCopied"
	// OriginCleaned is True if all objects have been removed from the origin shard.
	OriginCleaned conditionsv1alpha1.Type = "OriginCleaned"
	// Completed is True if the destination shard serves the logical cluster.
	Completed conditionsv1alpha1.Type = "Completed"
	// DestinationCleaned is True if the destination shard of an aborted migration has removed what it had copied.
	DestinationCleaned conditionsv1alpha1.Type = "DestinationCleaned"
	// Aborted is True if the migration has been given up. The logical cluster has stayed on the origin shard, or was deleted.
	Aborted conditionsv1alpha1.Type = "Aborted"
)

// MigrationFinalizer keeps a LogicalClusterMigration until both shards have removed what it has left.
const MigrationFinalizer = "migration.kcp.io/logicalclustermigration"

// Reasons of conditions that are false.
const (
	// ReasonLogicalClusterAlreadyMigrating means that another migration of the logical cluster is in progress.
	ReasonLogicalClusterAlreadyMigrating = "LogicalClusterAlreadyMigrating"
	// ReasonCopyFailed means that reading from the origin or writing to the destination failed.
	ReasonCopyFailed = "CopyFailed"
	// ReasonCleanupFailed means that removing the content from the origin failed.
	ReasonCleanupFailed = "CleanupFailed"
	// ReasonLogicalClusterNotMovable means that the logical cluster cannot be migrated, or not to that shard.
	ReasonLogicalClusterNotMovable = "LogicalClusterNotMovable"
	// ReasonWaitingForDestination means that the destination shard has not started to copy: it does not exist, does not
	// run, has the feature disabled, or has no credentials for the origin.
	ReasonWaitingForDestination = "WaitingForDestination"
	// ReasonCopying means that objects are being copied.
	ReasonCopying = "Copying"
)
