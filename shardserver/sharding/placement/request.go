package placement

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Requester is the state of the shard of a workspace that requests a logical cluster from another shard.
type Requester struct {
	// ShardName is the name of this shard.
	ShardName string
	// Parent contains the workspace, Cluster is the requested logical cluster.
	Parent, Cluster logicalcluster.Name
	// Workspace is the stored workspace from a consistent read; nil if there is none of that name.
	Workspace *tenancyv1alpha1.Workspace
	// Report is the published report on the logical cluster, or nil.
	Report *shardingv1alpha1.LogicalClusterReport
	// HasParent is set if this shard serves Parent. Of one that has moved to another shard, or is about to come back, it does not know the workspaces:
	// that there is no such workspace here proves nothing then.
	HasParent bool
	// ParentMoves is set if Parent moves, or has moved, and this shard does not serve it: the workspaces there are the ones that count.
	ParentMoves bool
	// Held is set while this shard is restored and not released: it may not know the workspace, or know an older state of it.
	Held bool
	// Template returns the desired LogicalCluster of the workspace.
	Template func() (*corev1alpha1.LogicalCluster, error)
}

// ErrHeld is returned instead of a request to delete a logical cluster whose workspace was not deleted by a user.
var ErrHeld = errors.New("this shard was restored from a backup and is not released, so that no logical cluster is deleted because its workspace is missing")

// Request returns the request to publish, or nil. Its errors are those of Template, and ErrHeld.
func (r Requester) Request() (*shardingv1alpha1.LogicalClusterRequest, error) {
	request, err := r.placementRequest()
	if request == nil && err == nil {
		request = r.moveConfirmation()
	}
	return request, err
}

// placementRequest returns the request to the shard of the workspace, or nil.
func (r Requester) placementRequest() (*shardingv1alpha1.LogicalClusterRequest, error) {
	workspace := r.Workspace
	if workspace == nil || !r.placed() || released(workspace) {
		request := r.deletionRequest()
		switch {
		case request != nil && r.Held:
			return nil, ErrHeld
		case request != nil && !r.HasParent && !r.Report.Spec.Deleting: // what is being deleted may end
			return nil, nil
		}
		return request, nil
	}
	request := r.newRequest(workspace.Annotations[corev1alpha1.ShardAnnotationKey], Owner(r.Parent, workspace))
	switch {
	case workspace.DeletionTimestamp != nil && len(workspace.Finalizers) > 1:
		// The finalizers of others are removed first.
	case workspace.DeletionTimestamp == nil && Ended(workspace) && r.Held:
		return nil, ErrHeld
	case workspace.DeletionTimestamp != nil, Ended(workspace):
		request.Spec.Delete = true
		return request, nil
	case workspace.Spec.Cluster == "" && !r.accepted():
		template, err := r.Template()
		if err != nil {
			return nil, err
		}
		request.Spec.Annotations, request.Spec.Template = template.Annotations, &template.Spec
		return request, nil
	case r.matchingReport() != nil && r.matchingReport().Spec.MovedTo != "":
		return nil, nil // the workspace is about to name the other shard
	case isWorkspaceReady(workspace) && (r.matchingReport() == nil || !mustBeReported(r.matchingReport())):
		return nil, nil
	}
	if r.accepted() {
		request.Spec.Confirmed = r.Report.Spec.UID
	}
	return request, nil
}

// accepted reports whether the other shard has the logical cluster. It is confirmed although the workspace does not name it yet: the placement
// is stored, and a workspace that is placed again requests the deletion of what it was placed on before.
func (r Requester) accepted() bool {
	matching := r.matchingReport()
	return matching != nil && matching.Spec.State == shardingv1alpha1.LogicalClusterExists && !matching.Spec.Deleting
}

// placed reports whether the logical cluster of the workspace is on another shard.
func (r Requester) placed() bool {
	cluster, ok := Cluster(r.Workspace)
	shard := r.Workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	return ok && cluster == r.Cluster && shard != "" && shard != r.ShardName
}

// released reports whether the finalizer of a workspace that is being deleted is removed.
func released(workspace *tenancyv1alpha1.Workspace) bool {
	if workspace.DeletionTimestamp == nil {
		return false
	}
	for _, finalizer := range workspace.Finalizers {
		if finalizer == corev1alpha1.LogicalClusterFinalizer {
			return false
		}
	}
	return true
}

// isWorkspaceReady reports whether the workspace is Ready and not being deleted.
func isWorkspaceReady(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.DeletionTimestamp == nil && workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
}

// Ended reports whether the workspace has the condition that its logical cluster on another shard was deleted.
func Ended(workspace *tenancyv1alpha1.Workspace) bool {
	return conditionsv1alpha1.IsTrue(workspace, tenancyv1alpha1.LogicalClusterEnded)
}

// deletionRequest requests the deletion of a logical cluster that was created for a workspace of this shard and that no
// workspace has: because of an old request, or for a workspace that was deleted or has another name now. A workspace is kept until its logical
// cluster is deleted, and its parent until all workspaces are, so that the absence of the parent is no reason to delete anything.
func (r Requester) deletionRequest() *shardingv1alpha1.LogicalClusterRequest {
	report := r.Report
	if report == nil || report.Spec.MovedTo != "" || report.Spec.State != shardingv1alpha1.LogicalClusterExists || report.Spec.Shard != r.ShardName || report.Spec.Owner.Cluster != r.Parent.String() {
		return nil
	}
	request := r.newRequest(report.Annotations[publisherAnnotation], report.Spec.Owner)
	request.Spec.Delete = true
	return request
}

// moveConfirmation reports to the previous shard of the workspace's logical cluster that the workspace names the new one, or that
// there is no such workspace. A workspace that moves itself still names the previous one: the shard that it moves to learns the new one from the report of
// the previous shard, which ends with the confirmation.
func (r Requester) moveConfirmation() *shardingv1alpha1.LogicalClusterRequest {
	report := r.Report
	if report == nil || report.Spec.MovedTo == "" || report.Spec.Shard != r.ShardName || report.Spec.Owner.Cluster != r.Parent.String() || r.ParentMoves {
		return nil
	}
	previous := report.Annotations[publisherAnnotation]
	if r.Workspace != nil && r.Workspace.UID == report.Spec.Owner.UID && r.Workspace.Annotations[corev1alpha1.ShardAnnotationKey] == previous {
		return nil
	}
	request := r.newRequest(previous, report.Spec.Owner)
	request.Spec.Confirmed = report.Spec.UID
	return request
}

// matchingReport returns the report if it is about the workspace's own logical cluster, by the shard that has it; else
// nil.
func (r Requester) matchingReport() *shardingv1alpha1.LogicalClusterReport {
	return MatchingReport(r.Report, r.ShardName, r.Parent, r.Workspace)
}

// MatchingReport returns a report if it is from the shard of a workspace, and on that workspace; else nil.
func MatchingReport(report *shardingv1alpha1.LogicalClusterReport, shardName string, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) *shardingv1alpha1.LogicalClusterReport {
	if report == nil || report.Spec.Shard != shardName || report.Spec.Owner != Owner(parent, workspace) ||
		report.Annotations[publisherAnnotation] != workspace.Annotations[corev1alpha1.ShardAnnotationKey] {
		return nil
	}
	return report
}

// newRequest returns a request that only requests a report.
func (r Requester) newRequest(shard string, owner corev1alpha1.LogicalClusterOwner) *shardingv1alpha1.LogicalClusterRequest {
	return &shardingv1alpha1.LogicalClusterRequest{
		ObjectMeta: metav1.ObjectMeta{Name: RequestName(owner.Name, r.Cluster)},
		Spec:       shardingv1alpha1.LogicalClusterRequestSpec{Shard: shard, Cluster: r.Cluster.String(), Owner: owner},
	}
}
