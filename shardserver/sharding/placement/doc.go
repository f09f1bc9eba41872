// Package placement implements the protocol by which a workspace gets, tracks and deletes a logical cluster on another
// shard (ADR 0033). The shard of the workspace (Requester) publishes a request, the requested shard (Responder) acts on
// it and publishes a report; neither writes to the other.
//
// Both are pure functions of the stored objects of a shard and of the published objects of the other, so that they can
// be computed again after a crash or a loss of the cache. Published objects may be stale, hence these rules:
//
//   - A requested name is used once. Delete is final, and a workspace that is rescheduled gets another name.
//   - The requested shard creates a logical cluster for any request, however old. The logical cluster becomes Ready only
//     when the shard of the workspace confirms its UID, and is reported until then. The deletion of one that no workspace
//     has is requested, but only by a shard that serves the parent. One from which the parent has moved knows no workspaces of it, and is the shard
//     that the logical cluster names until its own shard has learned of the move.
//   - A logical cluster that is being deleted is reported, and kept without content until the shard of the workspace has
//     stored that it ended and has requested its deletion.
//   - The logical cluster has the name of the shard of its workspace. No other shard can request its deletion.
//
// Nothing here reads or writes objects; package tenancy does.
package placement

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// publisherAnnotation is the name of the shard that published a replicated object.
const publisherAnnotation = "kcp.io/shard"

// separator separates the parts of names. Names of workspaces and logical clusters do not contain it.
const separator = "."

// RequestName returns the name of the request for a logical cluster, in the logical cluster of the workspace.
func RequestName(workspace string, cluster logicalcluster.Name) string {
	return workspace + separator + cluster.String()
}

// ParseRequestName parses the name of a request.
func ParseRequestName(name string) (workspace string, cluster logicalcluster.Name, ok bool) {
	workspace, text, _ := strings.Cut(name, separator)
	cluster, err := logicalcluster.ParseName(text)
	return workspace, cluster, err == nil && workspace != ""
}

// ReportName returns the name of the report on a logical cluster, in that logical cluster.
func ReportName(parent logicalcluster.Name, workspace string) string {
	return parent.String() + separator + workspace
}

// ParseReportName parses the name of a report.
func ParseReportName(name string) (parent logicalcluster.Name, workspace string, ok bool) {
	text, workspace, _ := strings.Cut(name, separator)
	parent, err := logicalcluster.ParseName(text)
	return parent, workspace, err == nil && workspace != ""
}

// Cluster returns the name of the logical cluster of a workspace, or the one that is reserved for it; false if there is
// none.
func Cluster(workspace *tenancyv1alpha1.Workspace) (logicalcluster.Name, bool) {
	text := workspace.Spec.Cluster
	if text == "" {
		text = workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	}
	name, err := logicalcluster.ParseName(text)
	return name, err == nil && !name.IsSystem()
}

// Owner returns the owner reference of a logical cluster to its workspace.
func Owner(parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) corev1alpha1.LogicalClusterOwner {
	return corev1alpha1.LogicalClusterOwner{
		APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(),
		Resource:   "workspaces",
		Name:       workspace.Name,
		Cluster:    parent.String(),
		UID:        workspace.UID,
	}
}

// OwnedBy reports whether a logical cluster belongs to an owner.
func OwnedBy(cluster *corev1alpha1.LogicalCluster, owner corev1alpha1.LogicalClusterOwner) bool {
	return cluster.Spec.Owner != nil && equality.Semantic.DeepEqual(*cluster.Spec.Owner, owner)
}

// Remote reports whether a logical cluster belongs to a workspace on another shard, and returns the name of that shard.
func Remote(cluster *corev1alpha1.LogicalCluster) (shard string, ok bool) {
	shard = cluster.Annotations[corev1alpha1.OwnerShardAnnotationKey]
	return shard, shard != "" && cluster.Spec.Owner != nil
}

// Publisher returns the name of the shard that published a replicated object; the cache server sets it.
func Publisher(object metav1.Object) string { return object.GetAnnotations()[publisherAnnotation] }

// mustBeReported reports whether the shard of the workspace needs a report without a request.
func mustBeReported(report *shardingv1alpha1.LogicalClusterReport) bool {
	return report.Spec.State == shardingv1alpha1.LogicalClusterExists && (report.Spec.MovedTo != "" || report.Spec.Deleting || !wasReady(report.Spec.Phase))
}

// wasReady reports whether a logical cluster in this phase has been ready, or is being deleted.
func wasReady(phase corev1alpha1.LogicalClusterPhaseType) bool {
	switch phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		return false
	}
	return true
}
