package tenancy

import (
	"context"
	"errors"
	"strings"
	"time"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

const (
	// bindingsGracePeriod is the time for which a new logical cluster does not report that it waits for its bindings: most
	// bindings are complete sooner, and each report is a write of the LogicalCluster and another of the Workspace.
	bindingsGracePeriod = 3 * time.Second
	// A missing export is looked up again after retryExportMin, and later whenever the age of the logical cluster has
	// doubled, but at least every retryExportMax.
	retryExportMin = time.Second
	retryExportMax = time.Minute
)

// bindingsResult is the state of the default bindings of a logical cluster that is being initialized.
type bindingsResult struct {
	done bool
	// requeueAfter is the requeue delay; zero to wait for events.
	requeueAfter time.Duration
}

// newBindings returns the creation of the default bindings of the workspace's types; nil if the logical cluster does not wait for them, or if
// a type cannot be resolved, which is in the condition APIBindingsInitialized then.
func (c *logicalClusterController) newBindings(ctx context.Context, scope *clusterScope) (*defaultbindings.Initialization, error) {
	if !defaultbindings.IsWaiting(scope.cluster) {
		return nil, nil
	}
	aliases, err := c.aliases(ctx, scope.name)
	if errors.Is(err, workspacetype.ErrUnresolvable) {
		conditionsv1alpha1.MarkFalse(scope.cluster, corev1alpha1.APIBindingsInitialized, corev1alpha1.ReasonWorkspaceTypesInvalid, conditionsv1alpha1.SeverityError, "%v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.cfg.Defaults.Initialize(ctx, scope.cluster, aliases)
}

// recordBindings returns the state of the default bindings after their creation. The condition APIBindingsInitialized has the missing ones.
func recordBindings(scope *clusterScope, created *defaultbindings.Initialization) (bindingsResult, error) {
	if created == nil {
		return bindingsResult{}, nil
	}
	outcome, err := created.Outcome()
	if err != nil {
		return bindingsResult{}, err
	}
	if outcome.Done() {
		conditionsv1alpha1.Delete(scope.cluster, corev1alpha1.APIBindingsInitialized)
		return bindingsResult{done: true}, nil
	}
	age := age(scope.cluster.CreationTimestamp, time.Now())
	if outcome.Problems() == nil && age < bindingsGracePeriod {
		scope.deferWrite = true
		return bindingsResult{requeueAfter: bindingsGracePeriod - age}, nil
	}
	setBindingsCondition(scope.cluster, corev1alpha1.APIBindingsInitialized, outcome)
	if len(outcome.Missing) > 0 {
		return bindingsResult{requeueAfter: min(max(age, retryExportMin), retryExportMax)}, nil
	}
	return bindingsResult{}, nil
}

// maintainDefaults maintains the bindings of types with lifecycle Maintain as long as the logical cluster is in use.
// The bindings of root are maintained by package bootstrap. It returns the requeue delay, or zero.
func (c *logicalClusterController) maintainDefaults(ctx context.Context, scope *clusterScope) (time.Duration, error) {
	cluster := scope.cluster
	if cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || scope.name == logicalcluster.Root || scope.name.IsSystem() {
		return 0, nil
	}
	maintained := conditionsv1alpha1.Get(cluster, corev1alpha1.APIBindingsReconciled) != nil
	aliases, err := c.aliases(ctx, scope.name)
	if errors.Is(err, workspacetype.ErrUnresolvable) {
		if maintained {
			conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.APIBindingsReconciled, corev1alpha1.ReasonWorkspaceTypesInvalid, conditionsv1alpha1.SeverityError, "%v", err)
		}
		return 0, nil
	}
	if err != nil || !defaultbindings.HasMaintained(aliases) {
		return 0, err
	}
	outcome, err := c.cfg.Defaults.Maintain(ctx, aliases)
	if err != nil {
		return 0, err
	}
	switch {
	case outcome.Done():
		conditionsv1alpha1.MarkTrue(cluster, corev1alpha1.APIBindingsReconciled)
	case len(outcome.Missing) > 0:
		return retryExportMax, nil // the condition still applies
	default:
		setBindingsCondition(cluster, corev1alpha1.APIBindingsReconciled, outcome)
	}
	return 0, nil
}

func setBindingsCondition(cluster *corev1alpha1.LogicalCluster, condition conditionsv1alpha1.Type, outcome defaultbindings.Outcome) {
	if problems := outcome.Problems(); problems != nil {
		conditionsv1alpha1.MarkFalse(cluster, condition, corev1alpha1.ReasonAPIBindingErrors, conditionsv1alpha1.SeverityError, "%s", strings.Join(problems, "; "))
		return
	}
	conditionsv1alpha1.MarkFalse(cluster, condition, corev1alpha1.ReasonWaitingOnAPIBindings, conditionsv1alpha1.SeverityInfo,
		"waiting for APIBinding %s to be complete", strings.Join(outcome.Waiting, ", "))
}

func (c *logicalClusterController) aliases(ctx context.Context, cluster logicalcluster.Name) ([]workspacetype.Resolved, error) {
	leaf, err := c.cfg.Types.GetByCluster(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return c.cfg.Types.Aliases(ctx, leaf)
}
