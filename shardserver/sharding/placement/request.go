package placement

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Requester is what the shard of a workspace knows of it and of one logical cluster.
type Requester struct {
	// Own is the name of this shard.
	Own string
	// Parent contains the workspace, Cluster is the logical cluster that the question is about.
	Parent, Cluster logicalcluster.Name
	// Workspace is as it is stored, consistently; nil if there is none of that name.
	Workspace *tenancyv1alpha1.Workspace
	// Report is what another shard says of the logical cluster and the workspace, or nil.
	Report *shardingv1alpha1.LogicalClusterReport
	// Template returns the LogicalCluster that the workspace asks for.
	Template func() (*corev1alpha1.LogicalCluster, error)
}

// Request returns what to publish, or nil where there is nothing to ask. Its errors are those of Template.
func (q Requester) Request() (*shardingv1alpha1.LogicalClusterRequest, error) {
	workspace := q.Workspace
	if workspace == nil || !q.placed() || released(workspace) {
		return q.deletionRequest(), nil
	}
	request := q.newRequest(workspace.Annotations[corev1alpha1.ShardAnnotationKey], Owner(q.Parent, workspace))
	switch {
	case workspace.DeletionTimestamp != nil && len(workspace.Finalizers) > 1:
		// Everybody else's finalizers come first.
	case workspace.DeletionTimestamp != nil, Ended(workspace):
		request.Spec.Delete = true
		return request, nil
	case workspace.Spec.Cluster == "":
		template, err := q.Template()
		if err != nil {
			return nil, err
		}
		request.Spec.Annotations, request.Spec.Template = template.Annotations, &template.Spec
		return request, nil
	case isWorkspaceReady(workspace) && (q.matchingReport() == nil || !mustBeReported(q.matchingReport())):
		return nil, nil
	}
	if matching := q.matchingReport(); matching != nil && workspace.Spec.Cluster != "" && !matching.Spec.Deleting {
		request.Spec.Confirmed = matching.Spec.UID
	}
	return request, nil
}

// placed tells whether the workspace leads to the logical cluster, on another shard.
func (q Requester) placed() bool {
	cluster, ok := Cluster(q.Workspace)
	shard := q.Workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	return ok && cluster == q.Cluster && shard != "" && shard != q.Own
}

// released tells whether a workspace that is being deleted has been told that its logical cluster is gone.
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

// settled tells whether there is nothing that the workspace waits for.
func isWorkspaceReady(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.DeletionTimestamp == nil && workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
}

// Ended tells whether it is written down in a workspace that its logical cluster on another shard was deleted.
func Ended(workspace *tenancyv1alpha1.Workspace) bool {
	return conditionsv1alpha1.IsTrue(workspace, tenancyv1alpha1.LogicalClusterEnded)
}

// deletionRequest asks for the end of a logical cluster that was made for a workspace of this shard and that no workspace leads to:
// because of an old request, or for a workspace that is gone or has gone on to another name.
func (q Requester) deletionRequest() *shardingv1alpha1.LogicalClusterRequest {
	report := q.Report
	if report == nil || report.Spec.State != shardingv1alpha1.LogicalClusterExists || report.Spec.Shard != q.Own || report.Spec.Owner.Cluster != q.Parent.String() {
		return nil
	}
	request := q.newRequest(report.Annotations[publisherAnnotation], report.Spec.Owner)
	request.Spec.Delete = true
	return request
}

// matching returns the report if it is about the workspace's own logical cluster, by the shard that has it; else nil.
func (q Requester) matchingReport() *shardingv1alpha1.LogicalClusterReport {
	return MatchingReport(q.Report, q.Own, q.Parent, q.Workspace)
}

// MatchingReport returns a report if it is from the shard that a workspace was placed on, and about that very workspace; else nil.
func MatchingReport(report *shardingv1alpha1.LogicalClusterReport, own string, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) *shardingv1alpha1.LogicalClusterReport {
	if report == nil || report.Spec.Shard != own || report.Spec.Owner != Owner(parent, workspace) ||
		report.Annotations[publisherAnnotation] != workspace.Annotations[corev1alpha1.ShardAnnotationKey] {
		return nil
	}
	return report
}

// to returns a request that asks a shard for nothing but a report.
func (q Requester) newRequest(shard string, owner corev1alpha1.LogicalClusterOwner) *shardingv1alpha1.LogicalClusterRequest {
	return &shardingv1alpha1.LogicalClusterRequest{
		ObjectMeta: metav1.ObjectMeta{Name: RequestName(owner.Name, q.Cluster)},
		Spec:       shardingv1alpha1.LogicalClusterRequestSpec{Shard: shard, Cluster: q.Cluster.String(), Owner: owner},
	}
}
