package tenancy

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// delete takes the LogicalCluster of a workspace down and lets go of the workspace when it is gone. Everybody else's
// finalizers come first.
func (c *workspaceController) delete(ctx context.Context, scope *workspaceScope) error {
	workspace := scope.workspace
	if !controllerutil.ContainsFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer) {
		return nil
	}
	cluster, err := c.clusterToDelete(ctx, scope)
	if err != nil {
		return err
	}
	switch {
	case len(workspace.Finalizers) > 1:
		setDeletingStatus(workspace, cluster)
	case cluster != nil:
		if err := c.deleteCluster(ctx, cluster); err != nil {
			return err
		}
		setDeletingStatus(workspace, cluster)
	case c.isElsewhere(scope) && workspace.Spec.Cluster != "":
		setDeletingStatus(workspace, nil)
		conditionsv1alpha1.MarkFalse(workspace, corev1alpha1.WorkspaceContentDeleted, corev1alpha1.ReasonContentDeletionFailed, conditionsv1alpha1.SeverityError,
			"logical cluster %q is on shard %q, and deleting on another shard is not supported by this version", workspace.Spec.Cluster, chosenShard(workspace, scope.shards))
	default:
		controllerutil.RemoveFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer)
		return client.IgnoreNotFound(c.writeMain(ctx, scope))
	}
	return client.IgnoreNotFound(c.write(ctx, scope))
}

// clusterToDelete returns what the workspace led to, or was about to lead to; nil if that is nothing.
func (c *workspaceController) clusterToDelete(ctx context.Context, scope *workspaceScope) (*corev1alpha1.LogicalCluster, error) {
	name := scope.workspace.Spec.Cluster
	if name == "" {
		name = scope.workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	}
	if _, err := logicalcluster.ParseName(name); err != nil {
		return nil, nil // nothing was ever made under such a name
	}
	return c.clusterOf(ctx, scope, name)
}

func (c *workspaceController) deleteCluster(ctx context.Context, cluster *corev1alpha1.LogicalCluster) error {
	if cluster.DeletionTimestamp != nil {
		return nil
	}
	name := logicalcluster.Of(cluster)
	err := c.cfg.Clients.Typed.Delete(logicalcluster.With(ctx, name), cluster.DeepCopy(), client.Preconditions{UID: &cluster.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting logical cluster %q: %w", name, err)
	}
	return nil
}
