package tenancy

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// delete deletes the LogicalCluster of a workspace after all other finalizers are removed, and removes the workspace's
// finalizer when the LogicalCluster is removed.
func (c *workspaceController) delete(ctx context.Context, scope *workspaceScope) (controller.Result, error) {
	workspace := scope.workspace
	if !controllerutil.ContainsFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer) {
		return controller.Result{}, nil
	}
	cluster, err := c.clusterToDelete(ctx, scope)
	if err != nil {
		return controller.Result{}, err
	}
	if cluster == nil && c.isRemote(scope) {
		return c.deleteRemote(ctx, scope)
	}
	return c.deleteLocal(ctx, scope, cluster)
}

// deleteLocal deletes a LogicalCluster of this shard; cluster is nil if there is none.
func (c *workspaceController) deleteLocal(ctx context.Context, scope *workspaceScope, cluster *corev1alpha1.LogicalCluster) (controller.Result, error) {
	workspace := scope.workspace
	switch {
	case len(workspace.Finalizers) > 1:
		setDeletingStatus(workspace, cluster)
	case cluster != nil:
		if err := deleteCluster(ctx, c.cfg.Clients.Typed, cluster); err != nil {
			return controller.Result{}, err
		}
		if wait := deferDeletingStatus(workspace, cluster, scope.facts.now); wait > 0 {
			return controller.Result{RequeueAfter: wait}, nil // the removal of the LogicalCluster enqueues the workspace before
		}
		setDeletingStatus(workspace, cluster)
	default:
		controllerutil.RemoveFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer)
		return controller.Result{}, client.IgnoreNotFound(c.updateWorkspace(ctx, scope))
	}
	if err := c.write(ctx, scope); err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	c.waitForCache(ctx, scope) // the deletion of the LogicalCluster has enqueued the workspace
	return controller.Result{}, nil
}

// deferDeletingStatus returns the time for which the phase is not written because the workspace will be removed soon. It is
// zero for what users have to know.
func deferDeletingStatus(workspace *tenancyv1alpha1.Workspace, cluster *corev1alpha1.LogicalCluster, now time.Time) time.Duration {
	if len(cluster.Status.Terminators) > 0 || conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted) != nil {
		return 0
	}
	return max(0, contentStatusInterval-age(*workspace.DeletionTimestamp, now))
}

// clusterToDelete returns the LogicalCluster of the workspace, or nil.
func (c *workspaceController) clusterToDelete(ctx context.Context, scope *workspaceScope) (*corev1alpha1.LogicalCluster, error) {
	name := scope.workspace.Spec.Cluster
	if name == "" {
		name = scope.workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	}
	if _, err := logicalcluster.ParseName(name); err != nil {
		return nil, nil // no logical cluster can have such a name
	}
	return c.clusterOf(ctx, scope, name)
}

// deleteCluster deletes a LogicalCluster, unless it is being deleted.
func deleteCluster(ctx context.Context, through client.Client, cluster *corev1alpha1.LogicalCluster) error {
	if cluster.DeletionTimestamp != nil {
		return nil
	}
	name := logicalcluster.Of(cluster)
	err := through.Delete(logicalcluster.With(ctx, name), cluster.DeepCopy(), client.Preconditions{UID: &cluster.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting logical cluster %q: %w", name, err)
	}
	return nil
}
