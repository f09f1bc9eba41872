// Package remote is how a workspace gets, follows and loses a logical cluster on another shard (ADR 0033). The shard of the
// workspace publishes a request, the asked shard acts on it and publishes a report; neither writes into the other.
//
// Both are pure functions of what a shard has stored and of what the other says, so that they can be derived again after
// a crash of either side or a loss of the cache. What is read of the other may be old, and that is what the rules are for:
//
//   - A name that was asked for is used once. Delete is final, and a workspace that goes on goes on with another name.
//   - The asked shard makes a logical cluster for any request, however old, but that becomes ready only when the shard of
//     the workspace confirms its UID, and is reported until it is ready. One that nobody wants is asked back.
//   - A logical cluster that is deleted is reported, and kept without content until the shard of the workspace has asked
//     for its end, which it does after it wrote down that it knows.
//   - The shard of the workspace is noted in the logical cluster. No other shard can ask for the end of it.
//
// Nothing here reads or writes; that is the business of package tenancy.
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

// publisherAnnotation names the shard that published what was read from elsewhere.
const publisherAnnotation = "kcp.io/shard"

// separator stands between the parts of names. Neither workspaces nor logical clusters have one in theirs.
const separator = "."

// RequestName returns the name under which a logical cluster is asked for, in the logical cluster of the workspace.
func RequestName(workspace string, cluster logicalcluster.Name) string {
	return workspace + separator + cluster.String()
}

// ParseRequestName takes the name of a request apart.
func ParseRequestName(name string) (workspace string, cluster logicalcluster.Name, ok bool) {
	workspace, text, _ := strings.Cut(name, separator)
	cluster, err := logicalcluster.ParseName(text)
	return workspace, cluster, err == nil && workspace != ""
}

// ReportName returns the name under which a logical cluster is reported, in that logical cluster.
func ReportName(parent logicalcluster.Name, workspace string) string {
	return parent.String() + separator + workspace
}

// ParseReportName takes the name of a report apart.
func ParseReportName(name string) (parent logicalcluster.Name, workspace string, ok bool) {
	text, workspace, _ := strings.Cut(name, separator)
	parent, err := logicalcluster.ParseName(text)
	return parent, workspace, err == nil && workspace != ""
}

// Cluster returns the name of the logical cluster that a workspace leads to or is about to lead to; false where none was
// chosen.
func Cluster(workspace *tenancyv1alpha1.Workspace) (logicalcluster.Name, bool) {
	text := workspace.Spec.Cluster
	if text == "" {
		text = workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	}
	name, err := logicalcluster.ParseName(text)
	return name, err == nil && !name.IsSystem()
}

// Owner returns how a logical cluster refers to its workspace.
func Owner(parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) corev1alpha1.LogicalClusterOwner {
	return corev1alpha1.LogicalClusterOwner{
		APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(),
		Resource:   "workspaces",
		Name:       workspace.Name,
		Cluster:    parent.String(),
		UID:        workspace.UID,
	}
}

// OwnedBy tells whether a logical cluster belongs to an owner.
func OwnedBy(cluster *corev1alpha1.LogicalCluster, owner corev1alpha1.LogicalClusterOwner) bool {
	return cluster.Spec.Owner != nil && equality.Semantic.DeepEqual(*cluster.Spec.Owner, owner)
}

// Remote tells whether a logical cluster belongs to a workspace on another shard, and returns the name of that shard.
func Remote(cluster *corev1alpha1.LogicalCluster) (shard string, ok bool) {
	shard = cluster.Annotations[corev1alpha1.OwnerShardAnnotationKey]
	return shard, shard != "" && cluster.Spec.Owner != nil
}

// Publisher returns the name of the shard that published what was read from elsewhere; it is stamped by the cache.
func Publisher(of metav1.Object) string { return of.GetAnnotations()[publisherAnnotation] }

// mustBeReported tells whether a report says what the workspace must know although nobody has asked.
func mustBeReported(report *shardingv1alpha1.LogicalClusterReport) bool {
	return report.Spec.State == shardingv1alpha1.LogicalClusterExists && (report.Spec.Deleting || !wasReady(report.Spec.Phase))
}

// begun tells whether a logical cluster in this phase was ready once, or need not be any more.
func wasReady(phase corev1alpha1.LogicalClusterPhaseType) bool {
	switch phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		return false
	}
	return true
}
