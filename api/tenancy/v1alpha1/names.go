package v1alpha1

import (
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Annotations and labels of Workspaces. Those that are also set on LogicalClusters are in core.kcp.io/v1alpha1.
const (
	// ExperimentalWorkspaceOwnerAnnotationKey contains the creator of a workspace as JSON, an authentication.k8s.io/v1
	// UserInfo. It is reduced to the name of the user once the workspace is ready.
	ExperimentalWorkspaceOwnerAnnotationKey = "experimental.tenancy.kcp.io/owner"
	// WorkspaceShardHashAnnotationKey contains the hash of the name of the scheduled shard. It precedes
	// core.kcp.io/shard, which is set from it if missing.
	WorkspaceShardHashAnnotationKey = "internal.tenancy.kcp.io/shard"
	// WorkspaceClusterAnnotationKey contains the name of the logical cluster until spec.cluster is set.
	WorkspaceClusterAnnotationKey = "internal.tenancy.kcp.io/cluster"
	// WorkspacePreviousClusterAnnotationKey contains the previous name of the logical cluster if another shard rejected
	// its creation. The request to that shard is withdrawn.
	WorkspacePreviousClusterAnnotationKey = "internal.tenancy.kcp.io/previous-cluster"
	// RegionLabelKey contains the region of a workspace. It is copied from the shard.
	RegionLabelKey = corev1alpha1.RegionLabelKey
)

// Condition types of Workspaces. WorkspaceInitialized and WorkspaceContentDeleted are in core.kcp.io/v1alpha1.
const (
	// WorkspaceScheduled is True if the workspace is scheduled to a shard.
	WorkspaceScheduled conditionsv1alpha1.Type = "WorkspaceScheduled"
	// LogicalClusterEnded is True if the logical cluster of the workspace, on another shard, was deleted before the
	// workspace.
	LogicalClusterEnded conditionsv1alpha1.Type = "LogicalClusterEnded"
	// WorkspaceMountReady is True if the object of the mount is ready.
	WorkspaceMountReady conditionsv1alpha1.Type = "WorkspaceMountReady"
)

// Reasons of WorkspaceScheduled.
const (
	// ReasonUnschedulable means that no shard matches, the scheduled shard does not exist, or the selector is invalid.
	ReasonUnschedulable = "Unschedulable"
	// ReasonUnknown means that the URL of the scheduled shard is invalid.
	ReasonUnknown = "Unknown"
	// ReasonWaitingForShard means that the scheduled shard has not responded yet.
	ReasonWaitingForShard = "WaitingForShard"
)

// Reasons of WorkspaceMountReady.
const (
	// ReasonMountObjectNotFound means that the object does not exist.
	ReasonMountObjectNotFound = "MountObjectNotFound"
	// ReasonMountObjectNotReady means that the object is not in phase Ready, or has no valid URL.
	ReasonMountObjectNotReady = "MountObjectNotReady"
)

// Conditions and reasons of WorkspaceTypes.
const (
	// WorkspaceTypeVirtualWorkspaceURLsReady is True if status.virtualWorkspaces is complete.
	WorkspaceTypeVirtualWorkspaceURLsReady conditionsv1alpha1.Type = "VirtualWorkspaceURLsReady"
	// ReasonErrorGeneratingURLs means that a shard has no valid URL.
	ReasonErrorGeneratingURLs = "ErrorGeneratingURLs"
)

// Names of built-in workspace types.
const (
	// WorkspaceTypeRoot is the type of the root workspace.
	WorkspaceTypeRoot = "root"
	// WorkspaceTypeUniversal is the base type that the other built-in types extend.
	WorkspaceTypeUniversal = "universal"
)
