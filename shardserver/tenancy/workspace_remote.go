package tenancy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

const (
	// acceptTimeout is how long a workspace waits for the report of a shard that does not answer before it is scheduled on
	// another one.
	acceptTimeout = 20 * time.Second
	// reportRetryInterval is the requeue delay of a workspace that waits for a report.
	reportRetryInterval = 10 * time.Second
)

// mapReport maps the report of another shard to the workspace of the logical cluster.
func (c *workspaceController) mapReport(event watch.Event) []controller.Request {
	report, ok := event.Object.(*shardingv1alpha1.LogicalClusterReport)
	if !ok || report.Spec.Shard != c.cfg.ShardName {
		return nil
	}
	parent, workspace, ok := placement.ParseReportName(report.Name)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: parent, Name: workspace}}
}

// report returns the report of another shard on the logical cluster of a workspace; nil if there is none.
func (c *workspaceController) report(ctx context.Context, scope *workspaceScope) (*shardingv1alpha1.LogicalClusterReport, error) {
	cluster, ok := placement.Cluster(scope.workspace)
	if !ok {
		return nil, nil
	}
	return readReport(ctx, c.reports, scope.workspace.Annotations[corev1alpha1.ShardAnnotationKey], scope.parent, scope.workspace.Name, cluster)
}

// remoteState is the state of the request for a logical cluster on another shard.
type remoteState string

const (
	remoteWaiting     remoteState = "waits"       // for the answer
	remoteAccepted    remoteState = "accepted"    // the logical cluster exists
	remoteNeedsName   remoteState = "needs name"  // for a logical cluster on the same shard
	remoteNeedsShard  remoteState = "needs shard" // another one; without one it keeps waiting
	remoteDisappeared remoteState = "disappeared" // the logical cluster existed
)

// remoteStateOf derives the state from the report on a workspace that is scheduled on another shard.
func remoteStateOf(workspace *tenancyv1alpha1.Workspace, parent logicalcluster.Name, own string, report *shardingv1alpha1.LogicalClusterReport) remoteState {
	matching := placement.MatchingReport(report, own, parent, workspace)
	if report != nil && placement.Publisher(report) != workspace.Annotations[corev1alpha1.ShardAnnotationKey] {
		report = nil // it is from a shard that was not requested
	}
	scheduled := workspace.Spec.Cluster != ""
	switch {
	case matching == nil && report != nil && !scheduled && report.Spec.Owner.UID != workspace.UID:
		return remoteNeedsName // the logical cluster of an older workspace of the same name has it
	case matching == nil:
		return remoteWaiting
	}
	switch state := matching.Spec.State; {
	case state == shardingv1alpha1.LogicalClusterExists && !matching.Spec.Deleting:
		return remoteAccepted
	case scheduled && state != shardingv1alpha1.LogicalClusterRefused:
		return remoteDisappeared
	case state == shardingv1alpha1.LogicalClusterExists, state == shardingv1alpha1.LogicalClusterRefused && matching.Spec.Reason == shardingv1alpha1.ReasonNameTaken:
		return remoteNeedsName
	case state == shardingv1alpha1.LogicalClusterRefused && !scheduled:
		return remoteNeedsShard
	}
	return remoteWaiting
}

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
	report, err := c.report(ctx, scope)
	if err != nil {
		return err
	}
	workspace := scope.workspace
	switch remoteStateOf(workspace, scope.parent, c.cfg.ShardName, report) {
	case remoteAccepted:
		name, _ := placement.Cluster(workspace)
		workspace.Spec.Cluster = name.String()
		scope.facts.cluster = placement.LogicalClusterFromReport(report, workspace)
		return nil
	case remoteNeedsName:
		discardClusterName(workspace)
		return c.reserveRemote(ctx, scope, shard)
	case remoteNeedsShard:
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
	shard, err := c.scheduler.Choose(scope.shards, selector, c.ownReport(ctx), excluded.Name)
	if err != nil {
		return nil // the condition has the state of the first choice
	}
	discardClusterName(scope.workspace)
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

// discardClusterName removes the reserved name of the logical cluster. It is not used again.
func discardClusterName(workspace *tenancyv1alpha1.Workspace) {
	old := workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspacePreviousClusterAnnotationKey, old)
	delete(workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey)
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
	report, err := c.report(ctx, scope)
	if err != nil {
		return err
	}
	switch remoteStateOf(scope.workspace, scope.parent, c.cfg.ShardName, report) {
	case remoteAccepted:
		if !placement.Ended(scope.stored) {
			scope.facts.cluster = placement.LogicalClusterFromReport(report, scope.workspace)
			return nil
		}
		scope.facts.ended = true // created again because of an old request; its deletion is requested
	case remoteDisappeared:
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
	report, err := c.report(ctx, scope)
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

// publishedReader reads requests or reports of other shards, in the logical cluster of the context.
type publishedReader[T metav1.Object] interface {
	Get(ctx context.Context, namespace, name string) (T, error)
	List(ctx context.Context, namespace string, selector labels.Selector) ([]T, error)
}

// readReport returns the report on a logical cluster, or nil. It prefers the one of shard, as several shards can
// publish under the same name.
func readReport(ctx context.Context, from publishedReader[*shardingv1alpha1.LogicalClusterReport], shard string, parent logicalcluster.Name, workspace string, cluster logicalcluster.Name) (*shardingv1alpha1.LogicalClusterReport, error) {
	report, err := publishedBy(logicalcluster.With(ctx, cluster), from, shard, placement.ReportName(parent, workspace))
	if notPublished(err) {
		return nil, nil
	}
	return report, err
}

// publishedBy returns the object that a shard has published under a name, else one that another shard has.
func publishedBy[T metav1.Object](ctx context.Context, from publishedReader[T], shard, name string) (T, error) {
	found, err := from.Get(ctx, "", name)
	if err != nil || shard == "" || placement.Publisher(found) == shard {
		return found, err
	}
	all, err := from.List(ctx, "", nil)
	if err != nil {
		return found, err
	}
	for _, other := range all {
		if other.GetName() == name && placement.Publisher(other) == shard {
			return other, nil
		}
	}
	return found, nil
}

// notPublished reports whether nothing is published or the replica is not synced. The absence of a request or a report
// has no effects, so the two are not distinguished.
func notPublished(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}
