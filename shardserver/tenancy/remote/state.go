package remote

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

// State is the state of the request for a logical cluster on another shard.
type State string

const (
	Waiting     State = "waits"       // for the answer
	Accepted    State = "accepted"    // the logical cluster exists
	NeedsName   State = "needs name"  // for a logical cluster on the same shard
	NeedsShard  State = "needs shard" // another one; without one it keeps waiting
	Disappeared State = "disappeared" // the logical cluster existed
)

// StateOf derives the state from the report on a workspace that is scheduled on another shard.
func StateOf(workspace *tenancyv1alpha1.Workspace, parent logicalcluster.Name, own string, report *shardingv1alpha1.LogicalClusterReport) State {
	matching := placement.MatchingReport(report, own, parent, workspace)
	if report != nil && placement.Publisher(report) != workspace.Annotations[corev1alpha1.ShardAnnotationKey] {
		report = nil // it is from a shard that was not requested
	}
	scheduled := workspace.Spec.Cluster != ""
	switch {
	case matching == nil && report != nil && !scheduled && report.Spec.Owner.UID != workspace.UID:
		return NeedsName // the logical cluster of an older workspace of the same name has it
	case matching == nil:
		return Waiting
	}
	switch state := matching.Spec.State; {
	case state == shardingv1alpha1.LogicalClusterExists && !matching.Spec.Deleting:
		return Accepted
	case scheduled && state != shardingv1alpha1.LogicalClusterRefused:
		return Disappeared
	case state == shardingv1alpha1.LogicalClusterExists, state == shardingv1alpha1.LogicalClusterRefused && matching.Spec.Reason == shardingv1alpha1.ReasonNameTaken:
		return NeedsName
	case state == shardingv1alpha1.LogicalClusterRefused && !scheduled:
		return NeedsShard
	}
	return Waiting
}

// DiscardClusterName removes the reserved name of the logical cluster. It is not used again.
func DiscardClusterName(workspace *tenancyv1alpha1.Workspace) {
	old := workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	metav1.SetMetaDataAnnotation(&workspace.ObjectMeta, tenancyv1alpha1.WorkspacePreviousClusterAnnotationKey, old)
	delete(workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey)
}
