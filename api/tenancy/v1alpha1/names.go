package v1alpha1

import (
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Annotations and labels of Workspaces. Those that LogicalClusters carry as well are named in core.kcp.io/v1alpha1.
const (
	// ExperimentalWorkspaceOwnerAnnotationKey holds the creator as JSON, an authentication.k8s.io/v1 UserInfo; it is
	// reduced to the user's name once the workspace is ready.
	ExperimentalWorkspaceOwnerAnnotationKey = "experimental.tenancy.kcp.io/owner"
	// WorkspaceShardHashAnnotationKey holds the hash of the chosen shard's name. It is older than
	// core.kcp.io/shard, and backfills it.
	WorkspaceShardHashAnnotationKey = "internal.tenancy.kcp.io/shard"
	// WorkspaceClusterAnnotationKey holds the chosen name of the logical cluster before spec.cluster does.
	WorkspaceClusterAnnotationKey = "internal.tenancy.kcp.io/cluster"
	// WorkspacePreviousClusterAnnotationKey holds the name that was chosen before, where another shard did not give a
	// logical cluster under it: what was asked there is taken back.
	WorkspacePreviousClusterAnnotationKey = "internal.tenancy.kcp.io/previous-cluster"
	// RegionLabelKey is copied from the shard.
	RegionLabelKey = corev1alpha1.RegionLabelKey
)

// Condition types of Workspaces. WorkspaceInitialized and WorkspaceContentDeleted are named in core.kcp.io/v1alpha1.
const (
	// WorkspaceScheduled: a shard has been chosen.
	WorkspaceScheduled conditionsv1alpha1.Type = "WorkspaceScheduled"
	// LogicalClusterEnded is True of a workspace whose logical cluster on another shard was deleted by itself.
	LogicalClusterEnded conditionsv1alpha1.Type = "LogicalClusterEnded"
	// WorkspaceMountReady: the object that a mount refers to is ready.
	WorkspaceMountReady conditionsv1alpha1.Type = "WorkspaceMountReady"
)

// Reasons of WorkspaceScheduled.
const (
	// ReasonUnschedulable: no shard fits, the chosen one is gone, or the selector is invalid.
	ReasonUnschedulable = "Unschedulable"
	// ReasonUnknown: the chosen shard's URL is invalid.
	ReasonUnknown = "Unknown"
	// ReasonWaitingForShard: the chosen shard has not answered yet.
	ReasonWaitingForShard = "WaitingForShard"
)

// Reasons of WorkspaceMountReady.
const (
	// ReasonMountObjectNotFound: the object does not exist.
	ReasonMountObjectNotFound = "MountObjectNotFound"
	// ReasonMountObjectNotReady: the object is not in phase Ready.
	ReasonMountObjectNotReady = "MountObjectNotReady"
)

// Conditions and reasons of WorkspaceTypes.
const (
	// WorkspaceTypeVirtualWorkspaceURLsReady: status.virtualWorkspaces is complete.
	WorkspaceTypeVirtualWorkspaceURLsReady conditionsv1alpha1.Type = "VirtualWorkspaceURLsReady"
	// ReasonErrorGeneratingURLs: a shard has no usable URL.
	ReasonErrorGeneratingURLs = "ErrorGeneratingURLs"
)

// Names of workspace types with a meaning of their own.
const (
	// WorkspaceTypeRoot is the type of the root workspace.
	WorkspaceTypeRoot = "root"
	// WorkspaceTypeUniversal is the type that the others extend.
	WorkspaceTypeUniversal = "universal"
)
