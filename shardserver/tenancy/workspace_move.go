package tenancy

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

// updateMovedShard stores the shard to which the logical cluster of a workspace has been handed over. Only the shard that the
// workspace names can hand it over: this one by the LogicalCluster, another one by its report.
func (c *workspaceController) updateMovedShard(ctx context.Context, scope *workspaceScope) error {
	name, err := logicalcluster.ParseName(scope.stored.Spec.Cluster)
	if err != nil {
		return nil // it is a mount, or is not scheduled
	}
	movedTo, err := c.movedTo(ctx, scope, name)
	if err != nil || movedTo == "" || movedTo == scope.stored.Annotations[corev1alpha1.ShardAnnotationKey] {
		return err
	}
	workspace := scope.workspace
	setShard(workspace, movedTo)
	if shard := shardByName(scope.shards, movedTo); shard != nil {
		setRegion(workspace, shard)
		if path, err := pathOf(ctx, c.cfg.Types, scope.parent, workspace); err == nil {
			workspace.Spec.URL = clusterURL(shard, path)
		}
	}
	return c.updateWorkspace(ctx, scope)
}

// movedTo returns the shard to which a logical cluster has been handed over, or "".
func (c *workspaceController) movedTo(ctx context.Context, scope *workspaceScope, name logicalcluster.Name) (string, error) {
	current := scope.stored.Annotations[corev1alpha1.ShardAnnotationKey]
	if current == c.cfg.ShardName {
		cluster, err := c.clusters.Get(logicalcluster.With(ctx, name), "", corev1alpha1.LogicalClusterName)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil || !owns(scope, cluster) {
			return "", err
		}
		return cluster.Annotations[corev1alpha1.MovedToAnnotationKey], nil
	}
	report, err := c.reports.ReportOn(ctx, scope.parent, scope.stored, name)
	if err != nil || report == nil {
		return "", err
	}
	if matching := placement.MatchingReport(report, c.cfg.ShardName, scope.parent, scope.stored); matching != nil {
		return matching.Spec.MovedTo, nil
	}
	return "", nil
}
