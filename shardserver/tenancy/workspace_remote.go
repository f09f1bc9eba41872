package tenancy

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
)

const (
	// acceptTimeout is how long a workspace waits for the report of a shard that does not answer before it is scheduled on
	// another one.
	acceptTimeout = 20 * time.Second
	// reportRetryInterval is the requeue delay of a workspace that waits for a report.
	reportRetryInterval = 10 * time.Second
)

// scheduleRemote schedules a workspace on another shard. The placement is stored first.
func (c *workspaceController) scheduleRemote(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	if _, reserved := placement.Cluster(scope.workspace); !reserved || chosenShard(scope.workspace, scope.shards) == "" {
		return c.reserveRemote(ctx, scope, shard)
	}
	return c.awaitRemote(ctx, scope, shard)
}

// awaitRemote processes the report on a workspace that is scheduled on another shard. The request for its logical
// cluster is published because of the stored placement.
func (c *workspaceController) awaitRemote(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	report, err := c.reports.Report(ctx, scope.parent, scope.workspace)
	if err != nil {
		return err
	}
	workspace := scope.workspace
	switch remote.StateOf(workspace, scope.parent, c.cfg.ShardName, report) {
	case remote.Accepted:
		name, _ := placement.Cluster(workspace)
		workspace.Spec.Cluster = name.String()
		scope.facts.cluster = placement.LogicalClusterFromReport(report, workspace)
		return nil
	case remote.NeedsName:
		remote.DiscardClusterName(workspace)
		return c.reserveRemote(ctx, scope, shard)
	case remote.NeedsShard:
		scope.facts.refused = unschedulable("shard %q refused: %s", shard.Name, report.Spec.Message)
		return c.reschedule(ctx, scope, shard)
	}
	scope.facts.waiting = fmt.Sprintf("waiting for shard %q to accept", shard.Name)
	if c.scheduler.IsLost(shard.Name) && waitingTime(scope.stored, scope.facts.now) > acceptTimeout {
		return c.reschedule(ctx, scope, shard)
	}
	return nil
}

// reschedule schedules a workspace without a logical cluster on another shard than the one that refused it. If there is
// none, the workspace stays as it is.
func (c *workspaceController) reschedule(ctx context.Context, scope *workspaceScope, excluded *corev1alpha1.Shard) error {
	selector, err := placementrules.Selector(scope.workspace)
	if err != nil {
		return nil // it was valid when the shard was chosen; the shard may still answer
	}
	own, err := c.cfg.Health.Current(ctx)
	if err != nil {
		return err
	}
	shard, err := c.scheduler.Choose(scope.shards, selector, own, excluded.Name)
	if err != nil {
		return nil // the condition has the state of the first choice
	}
	remote.DiscardClusterName(scope.workspace)
	scope.facts.refused = nil
	if shard.Name == c.cfg.ShardName {
		scope.facts.waiting = ""
		setShard(scope.workspace, shard.Name)
		setRegion(scope.workspace, shard)
		return c.updateWorkspace(ctx, scope) // which enqueues the workspace again
	}
	return c.reserveRemote(ctx, scope, shard)
}

// reserveRemote stores the placement of the workspace on another shard.
func (c *workspaceController) reserveRemote(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	setPlacement(scope.workspace, shard)
	scope.facts.waiting = fmt.Sprintf("waiting for shard %q to accept", shard.Name)
	return c.updateWorkspace(ctx, scope)
}

// waitingTime returns how long the condition of the workspace has been waiting for a shard.
func waitingTime(workspace *tenancyv1alpha1.Workspace, now time.Time) time.Duration {
	condition := conditionsv1alpha1.Get(workspace, tenancyv1alpha1.WorkspaceScheduled)
	if condition == nil || condition.Reason != tenancyv1alpha1.ReasonWaitingForShard {
		return 0
	}
	return age(condition.LastTransitionTime, now)
}

// observeRemote reads the report of another shard on the logical cluster of the workspace.
func (c *workspaceController) observeRemote(ctx context.Context, scope *workspaceScope) error {
	report, err := c.reports.Report(ctx, scope.parent, scope.workspace)
	if err != nil {
		return err
	}
	switch remote.StateOf(scope.workspace, scope.parent, c.cfg.ShardName, report) {
	case remote.Accepted:
		if !placement.Ended(scope.stored) {
			scope.facts.cluster = placement.LogicalClusterFromReport(report, scope.workspace)
			return nil
		}
		scope.facts.ended = true // created again because of an old request; its deletion is requested
	case remote.Disappeared:
		scope.facts.ended = true
	default:
		scope.facts.ended = placement.Ended(scope.stored)
		scope.facts.remote = true
	}
	return nil
}

// deleteRemote removes the finalizer of a workspace when the shard of its logical cluster reports that it does not
// exist, or when that shard was removed.
func (c *workspaceController) deleteRemote(ctx context.Context, scope *workspaceScope) (controller.Result, error) {
	workspace, shard := scope.workspace, chosenShard(scope.workspace, scope.shards)
	report, err := c.reports.Report(ctx, scope.parent, scope.workspace)
	if err != nil {
		return controller.Result{}, err
	}
	matching := placement.MatchingReport(report, c.cfg.ShardName, scope.parent, workspace)
	gone := matching != nil && matching.Spec.State != shardingv1alpha1.LogicalClusterExists
	switch {
	case len(workspace.Finalizers) > 1:
	case gone, shardByName(scope.shards, shard) == nil, workspace.Spec.Cluster == "" && c.scheduler.IsLost(shard):
		// If a lost shard creates the logical cluster later, its deletion is requested then.
		controllerutil.RemoveFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer)
		return controller.Result{}, client.IgnoreNotFound(c.updateWorkspace(ctx, scope))
	}
	var observed *corev1alpha1.LogicalCluster
	if matching != nil && !gone {
		observed = placement.LogicalClusterFromReport(matching, workspace)
	}
	setDeletingStatus(workspace, observed)
	result := controller.Result{}
	if len(workspace.Finalizers) == 1 && (observed == nil || !matching.Spec.Deleting) {
		result.RequeueAfter = reportRetryInterval
		if age(*workspace.DeletionTimestamp, scope.facts.now) < statusGracePeriod {
			result.RequeueAfter = statusGracePeriod
		} else {
			conditionsv1alpha1.MarkFalse(workspace, corev1alpha1.WorkspaceContentDeleted, tenancyv1alpha1.ReasonWaitingForShard, conditionsv1alpha1.SeverityInfo,
				"waiting for shard %q to delete the logical cluster", shard)
		}
	}
	return result, client.IgnoreNotFound(c.write(ctx, scope))
}
