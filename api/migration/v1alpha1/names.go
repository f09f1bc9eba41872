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
	// PlacementAllowed is True if the logical cluster may be placed on the destination shard. Nothing is copied before.
	PlacementAllowed conditionsv1alpha1.Type = "PlacementAllowed"
	// ChildrenMoved is True if all logical clusters below the migrated one are on the destination shard. Only migrations that
	// include children have it.
	ChildrenMoved conditionsv1alpha1.Type = "ChildrenMoved"
	// Progressing is False if nothing has changed for a long time.
	Progressing conditionsv1alpha1.Type = "Progressing"
)

// IncludeChildrenAnnotationKey on a LogicalClusterMigration, with the value "true", moves the logical clusters of all
// workspaces below, too.
const IncludeChildrenAnnotationKey = "migration.kcp.io/include-children"

// IgnoreSelectorAnnotationKey on a LogicalClusterMigration, with the value "true", allows a shard that the selectors of the migrated
// workspaces exclude. All other rules of placement hold.
const IgnoreSelectorAnnotationKey = "migration.kcp.io/ignore-selector"

// MigrationFinalizer keeps a LogicalClusterMigration until both shards have removed what it has left.
const MigrationFinalizer = "migration.kcp.io/logicalclustermigration"

// Reasons of conditions that are false.
const (
	// ReasonLogicalClusterAlreadyMigrating means that another migration of the logical cluster is in progress.
	ReasonLogicalClusterAlreadyMigrating = "LogicalClusterAlreadyMigrating"
	// ReasonCopyFailed means that reading from the origin or writing to the destination failed.
	ReasonCopyFailed = "CopyFailed"
	// ReasonDestinationFull means that the destination shard has no space for the objects. The migration is aborted.
	ReasonDestinationFull = "DestinationFull"
	// ReasonCleanupFailed means that removing the content from the origin failed.
	ReasonCleanupFailed = "CleanupFailed"
	// ReasonKeysNotHandedOver means that the origin does not remove its content, because it has keys that it has not handed over.
	ReasonKeysNotHandedOver = "KeysNotHandedOver"
	// ReasonLogicalClusterNotMovable means that the logical cluster cannot be migrated, or not to that shard.
	ReasonLogicalClusterNotMovable = "LogicalClusterNotMovable"
	// ReasonWaitingForDestination means that the destination shard has not started to copy: it does not exist, does not
	// run, has the feature disabled, or has no credentials for the origin.
	ReasonWaitingForDestination = "WaitingForDestination"
	// ReasonCopying means that objects are being copied.
	ReasonCopying = "Copying"
	// ReasonWaitingForPlacement means that nothing is copied before the condition PlacementAllowed is True.
	ReasonWaitingForPlacement = "WaitingForPlacement"
	// ReasonMovingChildren means that the logical clusters below are being moved, one at a time.
	ReasonMovingChildren = "MovingChildren"
	// ReasonChildFailed means that a logical cluster below could not be moved. Those that were moved before stay where they
	// are, no other one is moved.
	ReasonChildFailed = "ChildFailed"
	// ReasonStopped means that the migration was deleted before all logical clusters below were moved.
	ReasonStopped = "Stopped"
	// ReasonNoProgress means that nothing has changed for a long time.
	ReasonNoProgress = "NoProgress"
)

// Reasons of the condition PlacementAllowed: the rules of placement.
const (
	// ReasonWaitingForWorkspaceShard means that the shard of the Workspace, which decides, has not answered.
	ReasonWaitingForWorkspaceShard = "WaitingForWorkspaceShard"
	// ReasonUnknownShard means that there is no shard with the name of the destination.
	ReasonUnknownShard = "UnknownShard"
	// ReasonDifferentURL means that the URLs of the workspace would change.
	ReasonDifferentURL = "DifferentURL"
	// ReasonSelectorMismatch means that the destination does not match spec.location.selector of the Workspace.
	ReasonSelectorMismatch = "SelectorMismatch"
	// ReasonShardFull means that the destination has reached a hard limit.
	ReasonShardFull = "ShardFull"
	// ReasonShardNotSchedulable means that the destination accepts nothing more, for instance because it is cordoned.
	ReasonShardNotSchedulable = "ShardNotSchedulable"
)
