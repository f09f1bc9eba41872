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
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

const (
	// giveUpAfter is for how long a workspace waits for the answer of a shard that is silent.
	giveUpAfter = 20 * time.Second
	// answerAgain is when a workspace that waits for another shard is looked at although no answer came.
	answerAgain = 10 * time.Second
)

// ofReport maps the report of another shard to the workspace that it is about.
func (c *workspaceController) ofReport(event watch.Event) []controller.Key {
	report, ok := event.Object.(*shardingv1alpha1.LogicalClusterReport)
	if !ok || report.Spec.Shard != c.cfg.ShardName {
		return nil
	}
	parent, workspace, ok := placement.ParseReportName(report.Name)
	if !ok {
		return nil
	}
	return []controller.Key{{Cluster: parent, Name: workspace}}
}

// report returns what another shard says of the logical cluster that a workspace leads to or is about to lead to; nil if
// nothing is known.
func (c *workspaceController) report(ctx context.Context, scope *workspaceScope) (*shardingv1alpha1.LogicalClusterReport, error) {
	cluster, ok := placement.Cluster(scope.workspace)
	if !ok {
		return nil, nil
	}
	return readReport(ctx, c.reports, scope.workspace.Annotations[corev1alpha1.ShardAnnotationKey], scope.parent, scope.workspace.Name, cluster)
}

// verdict is what becomes of a workspace that another shard was asked to give a logical cluster.
type verdict string

const (
	waits       verdict = "waits"       // for the answer
	accepted    verdict = "accepted"    // the logical cluster is there
	needsName   verdict = "needs name"  // another one, for a logical cluster on the same shard
	needsPlace  verdict = "needs place" // on another shard, and if there is none it waits on
	disappeared verdict = "disappeared" // the logical cluster was there
)

// judge reads the report about a workspace that was placed on another shard.
func judge(workspace *tenancyv1alpha1.Workspace, parent logicalcluster.Name, own string, report *shardingv1alpha1.LogicalClusterReport) verdict {
	answer := placement.Answer(report, own, parent, workspace)
	if report != nil && placement.Publisher(report) != workspace.Annotations[corev1alpha1.ShardAnnotationKey] {
		report = nil // whoever says so was not asked
	}
	leads := workspace.Spec.Cluster != ""
	switch {
	case answer == nil && report != nil && !leads && report.Spec.Owner.UID != workspace.UID:
		return needsName // what was made for an older workspace of the same name has it
	case answer == nil:
		return waits
	}
	switch state := answer.Spec.State; {
	case state == shardingv1alpha1.LogicalClusterExists && !answer.Spec.Deleting:
		return accepted
	case leads && state != shardingv1alpha1.LogicalClusterRefused:
		return disappeared
	case state == shardingv1alpha1.LogicalClusterExists, state == shardingv1alpha1.LogicalClusterRefused && answer.Spec.Reason == shardingv1alpha1.ReasonNameTaken:
		return needsName
	case state == shardingv1alpha1.LogicalClusterRefused && !leads:
		return needsPlace
	}
	return waits
}

// scheduleElsewhere places a workspace on another shard: what is to be made is written down first.
func (c *workspaceController) scheduleElsewhere(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	if _, reserved := placement.Cluster(scope.workspace); !reserved || chosenShard(scope.workspace, scope.shards) == "" {
		return c.reserveElsewhere(ctx, scope, shard)
	}
	return c.awaitElsewhere(ctx, scope, shard)
}

// awaitElsewhere brings a workspace that is placed on another shard further: the request for its logical cluster is
// published because of what is written down here.
func (c *workspaceController) awaitElsewhere(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	report, err := c.report(ctx, scope)
	if err != nil {
		return err
	}
	workspace := scope.workspace
	switch judge(workspace, scope.parent, c.cfg.ShardName, report) {
	case accepted:
		name, _ := placement.Cluster(workspace)
		workspace.Spec.Cluster = name.String()
		scope.facts.cluster = placement.Describe(report, workspace)
		return nil
	case needsName:
		anotherName(workspace)
		return c.reserveElsewhere(ctx, scope, shard)
	case needsPlace:
		scope.facts.refused = unschedulable("shard %q refused: %s", shard.Name, report.Spec.Message)
		return c.placeAnew(ctx, scope, shard)
	}
	scope.facts.waiting = fmt.Sprintf("waiting for shard %q to accept", shard.Name)
	if c.placement.Lost(shard.Name) && waitedFor(scope.stored, scope.facts.now) > giveUpAfter {
		return c.placeAnew(ctx, scope, shard)
	}
	return nil
}

// placeAnew moves a workspace that has no logical cluster yet to another shard than the one that does not give it. If there
// is none, it goes on waiting.
func (c *workspaceController) placeAnew(ctx context.Context, scope *workspaceScope, not *corev1alpha1.Shard) error {
	selector, err := shardSelector(scope.workspace)
	if err != nil {
		return nil //nolint:nilerr // it was valid when the shard was chosen; the shard may still answer
	}
	shard, err := c.placement.Choose(scope.shards, selector, c.ownReport(ctx), not.Name)
	if err != nil {
		return nil //nolint:nilerr // the condition says what became of the first choice
	}
	anotherName(scope.workspace)
	scope.facts.refused = nil
	if shard.Name == c.cfg.ShardName {
		scope.facts.waiting = ""
		setShard(scope.workspace, shard.Name)
		setRegion(scope.workspace, shard)
		return c.writeMain(ctx, scope) // which queues the next look
	}
	return c.reserveElsewhere(ctx, scope, shard)
}

// reserveElsewhere writes down that the workspace is placed on another shard.
func (c *workspaceController) reserveElsewhere(ctx context.Context, scope *workspaceScope, shard *corev1alpha1.Shard) error {
	note(scope.workspace, shard)
	scope.facts.waiting = fmt.Sprintf("waiting for shard %q to accept", shard.Name)
	return c.writeMain(ctx, scope)
}

// anotherName chooses a new name for the logical cluster of a workspace. The old one is not used again.
func anotherName(workspace *tenancyv1alpha1.Workspace) {
	old := workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey]
	setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspacePreviousClusterAnnotationKey, old)
	delete(workspace.Annotations, tenancyv1alpha1.WorkspaceClusterAnnotationKey)
}

// waitedFor returns how long the workspace has shown that it waits.
func waitedFor(workspace *tenancyv1alpha1.Workspace, now time.Time) time.Duration {
	condition := conditionsv1alpha1.Get(workspace, tenancyv1alpha1.WorkspaceScheduled)
	if condition == nil || condition.Reason != tenancyv1alpha1.ReasonWaitingForShard {
		return 0
	}
	return age(condition.LastTransitionTime, now)
}

// observeElsewhere finds out what another shard says of the logical cluster that the workspace leads to.
func (c *workspaceController) observeElsewhere(ctx context.Context, scope *workspaceScope) error {
	report, err := c.report(ctx, scope)
	if err != nil {
		return err
	}
	switch judge(scope.workspace, scope.parent, c.cfg.ShardName, report) {
	case accepted:
		if !placement.Ended(scope.stored) {
			scope.facts.cluster = placement.Describe(report, scope.workspace)
			return nil
		}
		scope.facts.ended = true // made again because of an old request; it is asked back
	case disappeared:
		scope.facts.ended = true
	default:
		scope.facts.ended = placement.Ended(scope.stored)
		scope.facts.elsewhere = true
	}
	return nil
}

// deleteElsewhere lets a workspace go when the shard that it was placed on says that there is no logical cluster, or when
// there is no such shard any more.
func (c *workspaceController) deleteElsewhere(ctx context.Context, scope *workspaceScope) (controller.Result, error) {
	workspace, shard := scope.workspace, chosenShard(scope.workspace, scope.shards)
	report, err := c.report(ctx, scope)
	if err != nil {
		return controller.Result{}, err
	}
	answer := placement.Answer(report, c.cfg.ShardName, scope.parent, workspace)
	gone := answer != nil && answer.Spec.State != shardingv1alpha1.LogicalClusterExists
	switch {
	case len(workspace.Finalizers) > 1:
	case gone, named(scope.shards, shard) == nil, workspace.Spec.Cluster == "" && c.placement.Lost(shard):
		// What a shard that was lost might make all the same is asked back when it is there again.
		controllerutil.RemoveFinalizer(workspace, corev1alpha1.LogicalClusterFinalizer)
		return controller.Result{}, client.IgnoreNotFound(c.writeMain(ctx, scope))
	}
	var described *corev1alpha1.LogicalCluster
	if answer != nil && !gone {
		described = placement.Describe(answer, workspace)
	}
	setDeletingStatus(workspace, described)
	result := controller.Result{}
	if len(workspace.Finalizers) == 1 && (described == nil || !answer.Spec.Deleting) {
		result.RequeueAfter = answerAgain
		if age(*workspace.DeletionTimestamp, scope.facts.now) < ownTurn {
			result.RequeueAfter = ownTurn
		} else {
			conditionsv1alpha1.MarkFalse(workspace, corev1alpha1.WorkspaceContentDeleted, tenancyv1alpha1.ReasonWaitingForShard, conditionsv1alpha1.SeverityInfo,
				"waiting for shard %q to delete the logical cluster", shard)
		}
	}
	return result, client.IgnoreNotFound(c.write(ctx, scope))
}

// publications reads what shards tell each other, in the logical cluster of the context.
type publications[T metav1.Object] interface {
	Get(ctx context.Context, namespace, name string) (T, error)
	List(ctx context.Context, namespace string, selector labels.Selector) ([]T, error)
}

// readReport reads what another shard says of a logical cluster; nil where nothing is known. That shard is asked first,
// where one is named: another can publish under the same name.
func readReport(ctx context.Context, from publications[*shardingv1alpha1.LogicalClusterReport], shard string, parent logicalcluster.Name, workspace string, cluster logicalcluster.Name) (*shardingv1alpha1.LogicalClusterReport, error) {
	report, err := publishedBy(logicalcluster.With(ctx, cluster), from, shard, placement.ReportName(parent, workspace))
	if unheard(err) {
		return nil, nil
	}
	return report, err
}

// publishedBy returns what a shard has published under a name, or else whatever stands under it.
func publishedBy[T metav1.Object](ctx context.Context, from publications[T], shard, name string) (T, error) {
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

// unheard tells whether nothing was published, as far as is known. Nobody acts on the absence of a request or a report, so
// that it does not matter why.
func unheard(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) }
