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
)

// Reasons of conditions that are false.
const (
	// ReasonLogicalClusterAlreadyMigrating means that another migration of the logical cluster is in progress.
	ReasonLogicalClusterAlreadyMigrating = "LogicalClusterAlreadyMigrating"
	// ReasonCopyFailed means that reading from the origin or writing to the destination failed.
	ReasonCopyFailed = "CopyFailed"
	// ReasonCleanupFailed means that removing the content from the origin failed.
	ReasonCleanupFailed = "CleanupFailed"
)
