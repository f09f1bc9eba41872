package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// LogicalClusterName is the name of the singleton LogicalCluster of a logical cluster.
const LogicalClusterName = "cluster"

// Annotations of LogicalClusters. Some of them are set on other objects, too.
const (
	// LogicalClusterPathAnnotationKey contains the canonical workspace path of a logical cluster, for example
	// "root:a:b".
	LogicalClusterPathAnnotationKey = "kcp.io/path"
	// LogicalClusterTypeAnnotationKey contains the workspace type of a logical cluster, in the format "<path of the
	// type>:<name of the type>".
	LogicalClusterTypeAnnotationKey = "internal.tenancy.kcp.io/type"
	// ShardAnnotationKey contains the name of the shard of a logical cluster. It is also set on Workspaces.
	ShardAnnotationKey = "core.kcp.io/shard"
	// RequiredGroupsAnnotationKey contains the groups that a user must belong to: sets separated by ";", each in the
	// format "a,b".
	RequiredGroupsAnnotationKey = "authorization.kcp.io/required-groups"
	// ReplicateAnnotationKey contains a comma-separated list of the reasons to replicate the object to the cache. A
	// non-empty value enables replication.
	ReplicateAnnotationKey = "internal.kcp.io/replicate"
	// ResourceBindingsAnnotationKey contains the owner, a binding or a definition, of each resource of the logical
	// cluster.
	ResourceBindingsAnnotationKey = "internal.apis.kcp.io/resource-bindings"
	// InactiveAnnotationKey disables a logical cluster if its value is "true". Requests to it are rejected.
	InactiveAnnotationKey = "core.kcp.io/inactive"
	// LegacyInactiveAnnotationKey is the deprecated name of InactiveAnnotationKey.
	LegacyInactiveAnnotationKey = "internal.kcp.io/inactive"
	// MaxTotalObjectsAnnotationKey contains the maximum number of objects in the logical cluster, an integer.
	MaxTotalObjectsAnnotationKey = "core.kcp.io/max-total-objects"
	// MaxTotalBytesAnnotationKey contains the maximum size of all objects in the logical cluster as they are stored, in
	// bytes, an integer.
	MaxTotalBytesAnnotationKey = "core.kcp.io/max-total-bytes"
	// MaxChildWorkspacesAnnotationKey contains the maximum number of Workspaces in the logical cluster, and in each logical
	// cluster below it, an integer.
	MaxChildWorkspacesAnnotationKey = "core.kcp.io/max-child-workspaces"
	// MaxDescendantWorkspacesAnnotationKey contains the maximum number of Workspaces in the logical cluster and in all
	// logical clusters below it, together, an integer.
	MaxDescendantWorkspacesAnnotationKey = "core.kcp.io/max-descendant-workspaces"
	// MigratingAnnotationKey contains "<logical cluster>:<name of the LogicalClusterMigration>" during the migration of the
	// logical cluster.
	MigratingAnnotationKey = "internal.kcp.io/migrating"
	// OwnerShardAnnotationKey contains the name of the shard of the Workspace that owns a logical cluster, if that
	// differs from the shard of the logical cluster.
	OwnerShardAnnotationKey = "internal.core.kcp.io/owner-shard"
	// EpochAnnotationKey contains the number of moves of a logical cluster to another shard, an integer. Absent means 0.
	EpochAnnotationKey = "internal.core.kcp.io/epoch"
	// WritesPausedAnnotationKey contains the time until which the origin of a move refuses writes, and the value of
	// MigratingAnnotationKey, separated by a space. Writes are refused whatever the value is.
	WritesPausedAnnotationKey = "internal.core.kcp.io/writes-paused"
	// PauseAfterAnnotationKey contains the time from which the origin of a move may refuse writes again, after it has done so before, and how long
	// that is after the beginning of the last time, separated by a space.
	PauseAfterAnnotationKey = "internal.core.kcp.io/pause-after"
	// MovedToAnnotationKey contains the name of the shard to which the logical cluster has moved. The origin sets it and
	// serves nothing of the logical cluster from then on.
	MovedToAnnotationKey = "internal.core.kcp.io/moved-to"
	// HandedOverStoragesAnnotationKey contains the storages, separated by spaces, whose keys the other shard has got with the logical cluster.
	// The origin deletes no others.
	HandedOverStoragesAnnotationKey = "internal.core.kcp.io/handed-over-storages"
	// ArrivingAnnotationKey contains the UID of the LogicalClusterMigration that copies the logical cluster to this shard. Until
	// it is removed, another shard has the logical cluster, and clients do not see the copy.
	ArrivingAnnotationKey = "internal.core.kcp.io/arriving"
	// TokenKeysAnnotationKey contains the public keys of the shards that had the logical cluster before. Tokens that they signed
	// for its service accounts stay valid. Without the annotation, tokens have to be signed by its shard.
	TokenKeysAnnotationKey = "internal.core.kcp.io/token-keys"
	// ReceiptsAnnotationKey contains a receipt of each shard that has handed the logical cluster over, as a JSON list of at most 32. A shard signs its
	// receipt at the hand-over, and verifies it when its etcd has been restored from an earlier backup.
	ReceiptsAnnotationKey = "internal.core.kcp.io/receipts"
	// OutdatedAnnotationKey marks a logical cluster with MovedToAnnotationKey whose content on the shard is that of a backup from before the move. The
	// value is the time at which the shard marked it.
	OutdatedAnnotationKey = "internal.core.kcp.io/outdated"
)

// Annotations of Shards.
const (
	// UnschedulableAnnotationKey excludes a shard from scheduling, whatever its value.
	UnschedulableAnnotationKey = "experimental.core.kcp.io/unschedulable"
	// ShardRepresentationAnnotationKey marks a Shard in root that represents the one which its shard owns, in the logical
	// cluster system:shard of that shard.
	ShardRepresentationAnnotationKey = "core.kcp.io/shard-representation"
)

// Condition types of Shards, in addition to Ready, and their reasons.
const (
	// ShardSchedulable is True if new logical clusters are scheduled to the shard.
	ShardSchedulable conditionsv1alpha1.Type = "Schedulable"
	// ShardPublished is True if other shards can read the current state of all objects that the shard shares with them. It
	// is absent without a cache server.
	ShardPublished conditionsv1alpha1.Type = "Published"
	// ShardMovesKnown is False while a restored shard does not know yet which of its logical clusters other shards have got since the backup, and
	// while it has some of these. It is missing if the shard does not move logical clusters.
	ShardMovesKnown conditionsv1alpha1.Type = "MovesKnown"
	// ReasonOtherShardsNotAsked means that another shard has not answered a restored one, which refuses requests to its logical clusters until then.
	ReasonOtherShardsNotAsked = "OtherShardsNotAsked"
	// ReasonOutdatedLogicalClusters means that the shard was restored from a backup of before logical clusters moved, and does not serve these.
	ReasonOutdatedLogicalClusters = "OutdatedLogicalClusters"
	// ReasonObjectsRefused means that the cache server refuses objects in their current state.
	ReasonObjectsRefused = "ObjectsRefused"
	// ShardResourceLimitsApplied is False if a limit of the shard has no effect because it is invalid.
	ShardResourceLimitsApplied conditionsv1alpha1.Type = "ResourceLimitsApplied"

	// ReasonInvalidResourceLimits means that a limit is negative, or that the soft one is not below the hard one.
	ReasonInvalidResourceLimits = "InvalidResourceLimits"
	// ReasonShardCordoned means that an administrator has closed the shard for new workspaces.
	ReasonShardCordoned = "Cordoned"
	// ReasonShardFull means that the shard has reached its capacity.
	ReasonShardFull = "Full"
	// ReasonShardNotReporting means that the shard has not reported its status recently. Its Ready condition is
	// Unknown.
	ReasonShardNotReporting = "Silent"
	// ReasonShardNotHealthy means that the shard reports that it is not ready for traffic.
	ReasonShardNotHealthy = "NotHealthy"
)

// RegionLabelKey contains the region of a shard. It is copied to Workspaces from their shard.
const RegionLabelKey = "region"

// Labels of LogicalClusters.
const (
	// PhaseLabelKey contains status.phase. It is also set on Workspaces.
	PhaseLabelKey = "tenancy.kcp.io/phase"
	// InitializerLabelKeyPrefix is the prefix of the label for one remaining initializer, followed by a hash of its
	// name.
	InitializerLabelKeyPrefix = "initializer.internal.kcp.io/"
	// TerminatorLabelKeyPrefix is the prefix of the label for one remaining terminator, followed by a hash of its name.
	TerminatorLabelKeyPrefix = "terminator.internal.kcp.io/"
)

// Finalizers.
const (
	// LogicalClusterFinalizer remains on a Workspace until its logical cluster is deleted.
	LogicalClusterFinalizer = "core.kcp.io/logicalcluster"
	// LogicalClusterDeletionFinalizer remains on a LogicalCluster until its content is deleted.
	LogicalClusterDeletionFinalizer = "core.kcp.io/logicalcluster-deletion"
	// LogicalClusterHasTerminatorsFinalizer remains on a LogicalCluster while status.terminators is not empty.
	LogicalClusterHasTerminatorsFinalizer = "kcp.io/has-terminators"
)

// SystemAPIBindingsInitializer is the initializer for the default bindings of a new workspace.
const SystemAPIBindingsInitializer LogicalClusterInitializer = "system:apibindings"

// Condition types of LogicalClusters, copied to Workspaces where they apply.
const (
	// WorkspaceInitialized is True if no initializers remain.
	WorkspaceInitialized conditionsv1alpha1.Type = "WorkspaceInitialized"
	// WorkspaceContentDeleted is True if the content of a logical cluster that is being deleted has been deleted.
	WorkspaceContentDeleted conditionsv1alpha1.Type = "WorkspaceContentDeleted"
	// APIBindingsInitialized is True if the default bindings of the workspace's types exist and are complete.
	APIBindingsInitialized conditionsv1alpha1.Type = "APIBindingsInitialized"
	// APIBindingsReconciled is True if default bindings with lifecycle Maintain match the workspace's types.
	APIBindingsReconciled conditionsv1alpha1.Type = "APIBindingsReconciled"
	// ExpressionsWithinCostLimit is False while expressions of admission policies or webhooks are suspended, because they
	// have exceeded their cost limit repeatedly. Otherwise it does not exist.
	ExpressionsWithinCostLimit conditionsv1alpha1.Type = "ExpressionsWithinCostLimit"
	// WorkspacesWithinLimits is False if the logical cluster has as many Workspaces below it as the annotations
	// MaxChildWorkspacesAnnotationKey and MaxDescendantWorkspacesAnnotationKey allow, or more. The message has the numbers. It
	// is absent without these annotations.
	WorkspacesWithinLimits conditionsv1alpha1.Type = "WorkspacesWithinLimits"
)

// ReasonWorkspaceLimitReached is the reason of WorkspacesWithinLimits.
const ReasonWorkspaceLimitReached = "WorkspaceLimitReached"

// ReasonExpressionsSuspended is the reason of ExpressionsWithinCostLimit. The message contains the policies and webhooks.
const ReasonExpressionsSuspended = "ExpressionsSuspended"

// Reasons of WorkspaceInitialized.
const (
	// ReasonInitializerExists means that initializers remain. The message lists them.
	ReasonInitializerExists = "InitializerExists"
	// ReasonWorkspaceDisappeared means that the logical cluster or its shard cannot be found.
	ReasonWorkspaceDisappeared = "WorkspaceDisappeared"
)

// Reasons of WorkspaceContentDeleted.
const (
	// ReasonSomeResourcesRemain means that objects remain. The message contains their number, by resource and by
	// finalizer.
	ReasonSomeResourcesRemain = "SomeResourcesRemain"
	// ReasonDiscoveryFailed means that the resources of the logical cluster could not be listed.
	ReasonDiscoveryFailed = "DiscoveryFailed"
	// ReasonGroupVersionParsingFailed means that discovery returned an invalid group version.
	ReasonGroupVersionParsingFailed = "GroupVersionParsingFailed"
	// ReasonContentDeletionFailed means that the content could not be deleted because of an error.
	ReasonContentDeletionFailed = "ContentDeletionFailed"
)

// Reasons of APIBindingsInitialized and APIBindingsReconciled.
const (
	// ReasonWaitingOnAPIBindings means that bindings exist but are not complete yet.
	ReasonWaitingOnAPIBindings = "WaitingOnAPIBindings"
	// ReasonWorkspaceTypesInvalid means that the types of the workspace cannot be resolved.
	ReasonWorkspaceTypesInvalid = "WorkspaceTypesInvalid"
	// ReasonAPIBindingErrors means that bindings could not be created because of errors.
	ReasonAPIBindingErrors = "APIBindingErrors"
)
