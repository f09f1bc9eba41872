package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// LogicalClusterName is the name of the one LogicalCluster that a logical cluster contains.
const LogicalClusterName = "cluster"

// Annotations of LogicalClusters. Some of them are found on other objects too.
const (
	// LogicalClusterPathAnnotationKey holds the canonical workspace path of a logical cluster, "root:a:b".
	LogicalClusterPathAnnotationKey = "kcp.io/path"
	// LogicalClusterTypeAnnotationKey holds "<path of the type>:<name of the type>".
	LogicalClusterTypeAnnotationKey = "internal.tenancy.kcp.io/type"
	// ShardAnnotationKey holds the name of the shard that a logical cluster lives on; Workspaces carry it as well.
	ShardAnnotationKey = "core.kcp.io/shard"
	// RequiredGroupsAnnotationKey holds the groups that a user must belong to: sets separated by ";", each "a,b".
	RequiredGroupsAnnotationKey = "authorization.kcp.io/required-groups"
	// ReplicateAnnotationKey lists, separated by commas, who wants the object in the cache. Not empty: it goes there.
	ReplicateAnnotationKey = "internal.kcp.io/replicate"
	// ResourceBindingsAnnotationKey holds which binding or definition owns a resource of the logical cluster.
	ResourceBindingsAnnotationKey = "internal.apis.kcp.io/resource-bindings"
	// InactiveAnnotationKey makes a logical cluster refuse requests where its value is "true".
	InactiveAnnotationKey = "core.kcp.io/inactive"
	// LegacyInactiveAnnotationKey is the older spelling of InactiveAnnotationKey.
	LegacyInactiveAnnotationKey = "internal.kcp.io/inactive"
	// MaxTotalObjectsAnnotationKey bounds how many objects the logical cluster may hold; an integer.
	MaxTotalObjectsAnnotationKey = "core.kcp.io/max-total-objects"
	// MigratingAnnotationKey holds "<path>:<name of the LogicalClusterMigration>" while the logical cluster moves.
	MigratingAnnotationKey = "internal.kcp.io/migrating"
	// OwnerShardAnnotationKey holds the name of the shard of the Workspace that owns a logical cluster, where that is not
	// the shard of the logical cluster itself.
	OwnerShardAnnotationKey = "internal.core.kcp.io/owner-shard"
)

// Annotations of Shards.
const (
	// UnschedulableAnnotationKey keeps new workspaces away from a shard, whatever its value.
	UnschedulableAnnotationKey = "experimental.core.kcp.io/unschedulable"
)

// Condition types of Shards, beside Ready, and their reasons.
const (
	// ShardSchedulable tells whether new logical clusters go to the shard.
	ShardSchedulable conditionsv1alpha1.Type = "Schedulable"
	// ReasonShardFull: the shard holds as much as it is to hold.
	ReasonShardFull = "Full"
	// ReasonShardNotReporting: the shard has not been heard of for a while. Its Ready is Unknown.
	ReasonShardNotReporting = "Silent"
	// ReasonShardNotHealthy: the shard says of itself that it gets no traffic.
	ReasonShardNotHealthy = "NotHealthy"
)

// RegionLabelKey says where a shard runs. Workspaces get it from their shard.
const RegionLabelKey = "region"

// Labels of LogicalClusters.
const (
	// PhaseLabelKey repeats status.phase; Workspaces carry it as well.
	PhaseLabelKey = "tenancy.kcp.io/phase"
	// InitializerLabelKeyPrefix starts the label that stands for one remaining initializer, its name hashed.
	InitializerLabelKeyPrefix = "initializer.internal.kcp.io/"
	// TerminatorLabelKeyPrefix starts the label that stands for one remaining terminator, its name hashed.
	TerminatorLabelKeyPrefix = "terminator.internal.kcp.io/"
)

// Finalizers.
const (
	// LogicalClusterFinalizer stands on a Workspace until its logical cluster is gone.
	LogicalClusterFinalizer = "core.kcp.io/logicalcluster"
	// LogicalClusterDeletionFinalizer stands on a LogicalCluster until its content is gone.
	LogicalClusterDeletionFinalizer = "core.kcp.io/logicalcluster-deletion"
	// LogicalClusterHasTerminatorsFinalizer stands on a LogicalCluster while status.terminators is not empty.
	LogicalClusterHasTerminatorsFinalizer = "kcp.io/has-terminators"
)

// SystemAPIBindingsInitializer is the initializer that waits for the default bindings of a new workspace.
const SystemAPIBindingsInitializer LogicalClusterInitializer = "system:apibindings"

// Condition types of LogicalClusters, mirrored to Workspaces where they concern them.
const (
	// WorkspaceInitialized: all initializers have done their work.
	WorkspaceInitialized conditionsv1alpha1.Type = "WorkspaceInitialized"
	// WorkspaceContentDeleted: nothing is left in a logical cluster that is being deleted.
	WorkspaceContentDeleted conditionsv1alpha1.Type = "WorkspaceContentDeleted"
	// APIBindingsInitialized: the default bindings of the workspace's types exist and are complete.
	APIBindingsInitialized conditionsv1alpha1.Type = "APIBindingsInitialized"
	// APIBindingsReconciled: default bindings with lifecycle Maintain are as their types want them.
	APIBindingsReconciled conditionsv1alpha1.Type = "APIBindingsReconciled"
)

// Reasons of WorkspaceInitialized.
const (
	// ReasonInitializerExists: initializers remain; the message lists them.
	ReasonInitializerExists = "InitializerExists"
	// ReasonWorkspaceDisappeared: the logical cluster or its shard cannot be found.
	ReasonWorkspaceDisappeared = "WorkspaceDisappeared"
)

// Reasons of WorkspaceContentDeleted.
const (
	// ReasonSomeResourcesRemain: the message counts what remains, per resource and per finalizer.
	ReasonSomeResourcesRemain = "SomeResourcesRemain"
	// ReasonDiscoveryFailed: what the logical cluster serves cannot be found out.
	ReasonDiscoveryFailed = "DiscoveryFailed"
	// ReasonGroupVersionParsingFailed: discovery named a group version that is none.
	ReasonGroupVersionParsingFailed = "GroupVersionParsingFailed"
	// ReasonContentDeletionFailed: deleting the content met an error.
	ReasonContentDeletionFailed = "ContentDeletionFailed"
)

// Reasons of APIBindingsInitialized and APIBindingsReconciled.
const (
	// ReasonWaitingOnAPIBindings: bindings exist but are not complete yet.
	ReasonWaitingOnAPIBindings = "WaitingOnAPIBindings"
	// ReasonWorkspaceTypesInvalid: the types of the workspace cannot be resolved.
	ReasonWorkspaceTypesInvalid = "WorkspaceTypesInvalid"
	// ReasonAPIBindingErrors: creating bindings met errors.
	ReasonAPIBindingErrors = "APIBindingErrors"
)
