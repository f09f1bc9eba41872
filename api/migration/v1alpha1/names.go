package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Condition types of LogicalClusterMigrations.
const (
	// OriginReady: the shard of the logical cluster has stopped serving it, and its content can be read.
	OriginReady conditionsv1alpha1.Type = "OriginReady"
	// DataCopied: the destination has all objects.
	DataCopied conditionsv1alpha1.Type = "DataCopied"
	// OriginCleaned: the origin has no objects left.
	OriginCleaned conditionsv1alpha1.Type = "OriginCleaned"
	// Completed: the destination serves the logical cluster.
	Completed conditionsv1alpha1.Type = "Completed"
)

// Reasons of conditions that are false.
const (
	// ReasonLogicalClusterAlreadyMigrating: another migration is moving the logical cluster.
	ReasonLogicalClusterAlreadyMigrating = "LogicalClusterAlreadyMigrating"
	// ReasonCopyFailed: reading from the origin or writing to the destination failed.
	ReasonCopyFailed = "CopyFailed"
	// ReasonCleanupFailed: removing the content from the origin failed.
	ReasonCleanupFailed = "CleanupFailed"
)
