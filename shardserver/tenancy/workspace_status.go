package tenancy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// disappearedAfter is the age of a workspace at which a missing logical cluster is reported as disappeared.
const disappearedAfter = time.Minute

// workspaceFacts are the observations that the status of a workspace is derived from.
type workspaceFacts struct {
	// refused is the reason why the workspace cannot be scheduled, or nil.
	refused *refusal
	// cluster is the LogicalCluster of this shard, or that of a report; nil if there is none.
	cluster *corev1alpha1.LogicalCluster
	// remote is set if the logical cluster is on another shard that has not reported it.
	remote bool
	// waiting is the message while the workspace waits for another shard, or "".
	waiting string
	// ended is set if the logical cluster on another shard was deleted although the workspace was not.
	ended bool
	now   time.Time
}

// setStatus updates the status of a workspace that is not being deleted. It returns the requeue delay, or 0.
func setStatus(workspace *tenancyv1alpha1.Workspace, facts workspaceFacts) time.Duration {
	var requeueAfter time.Duration
	switch {
	case facts.refused != nil:
		conditionsv1alpha1.MarkFalse(workspace, tenancyv1alpha1.WorkspaceScheduled, facts.refused.reason, conditionsv1alpha1.SeverityError, "%s", facts.refused.message)
	case facts.waiting != "":
		requeueAfter = reportRetryInterval
		conditionsv1alpha1.MarkFalse(workspace, tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonWaitingForShard, conditionsv1alpha1.SeverityInfo, "%s", facts.waiting)
	case workspace.Spec.Cluster == "":
	case facts.ended:
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.WorkspaceScheduled)
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.LogicalClusterEnded)
		markDisappeared(workspace)
	case facts.cluster != nil:
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.WorkspaceScheduled)
		copyClusterStatus(workspace, facts.cluster)
	case facts.remote:
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.WorkspaceScheduled)
	default:
		conditionsv1alpha1.MarkTrue(workspace, tenancyv1alpha1.WorkspaceScheduled)
		if requeueAfter = disappearedAfter - age(workspace.CreationTimestamp, facts.now); requeueAfter <= 0 {
			requeueAfter = 0
			markDisappeared(workspace)
		}
	}
	workspace.Status.Phase = workspacePhase(workspace, facts)
	return requeueAfter
}

func markDisappeared(workspace *tenancyv1alpha1.Workspace) {
	conditionsv1alpha1.MarkFalse(workspace, corev1alpha1.WorkspaceInitialized, corev1alpha1.ReasonWorkspaceDisappeared, conditionsv1alpha1.SeverityError,
		"logical cluster %q of the workspace cannot be found", workspace.Spec.Cluster)
}

// statusGracePeriod is how long the system initializers may take before the workspace shows them. They usually complete
// sooner, which saves a write.
const statusGracePeriod = 2 * time.Second

// age returns the time since a timestamp. Timestamps in the future come from another clock, and count as very old:
// nothing must wait until the clocks agree.
func age(of metav1.Time, now time.Time) time.Duration {
	if age := now.Sub(of.Time); age >= 0 {
		return age
	}
	return math.MaxInt64
}

// deferStatus returns the time for which the status of a new workspace is not updated because it will be Ready soon.
func deferStatus(stored *tenancyv1alpha1.Workspace, facts workspaceFacts) time.Duration {
	if facts.waiting != "" && facts.refused == nil && len(stored.Status.Conditions) == 0 {
		return max(0, statusGracePeriod-age(stored.CreationTimestamp, facts.now)) // most shards answer at once
	}
	if facts.cluster == nil || !notStarted(stored.Status.Phase) || len(stored.Status.Conditions) > 0 || !initializing(facts.cluster) {
		return 0
	}
	for _, initializer := range facts.cluster.Status.Initializers {
		if initializer != universalInitializer && initializer != corev1alpha1.SystemAPIBindingsInitializer {
			return 0
		}
	}
	if facts.cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseInitializing || conditionsv1alpha1.IsFalse(facts.cluster, corev1alpha1.APIBindingsInitialized) {
		return 0 // it has not started, or its default bindings are not complete
	}
	return max(0, statusGracePeriod-age(facts.cluster.CreationTimestamp, facts.now))
}

// copyClusterStatus copies the initialization status of the LogicalCluster.
func copyClusterStatus(workspace *tenancyv1alpha1.Workspace, cluster *corev1alpha1.LogicalCluster) {
	initializers, terminators := cluster.Status.Initializers, cluster.Status.Terminators
	if notStarted(cluster.Status.Phase) {
		// They are copied from the spec when initialization starts.
		initializers, terminators = cluster.Spec.Initializers, cluster.Spec.Terminators
	}
	workspace.Status.Initializers = slices.Clone(initializers)
	workspace.Status.Terminators = slices.Clone(terminators)
	if initializing(cluster) {
		markInitializing(workspace, initializers)
	} else {
		conditionsv1alpha1.MarkTrue(workspace, corev1alpha1.WorkspaceInitialized)
	}
}

// workspacePhase derives the phase from the facts and the conditions. A workspace that was never scheduled stays in
// phase Scheduling, independent of its conditions.
func workspacePhase(workspace *tenancyv1alpha1.Workspace, facts workspaceFacts) corev1alpha1.LogicalClusterPhaseType {
	switch {
	case workspace.Spec.Cluster == "":
		return corev1alpha1.LogicalClusterPhaseScheduling
	case unavailable(workspace.Status.Conditions):
		return corev1alpha1.LogicalClusterPhaseUnavailable
	case facts.cluster != nil && initializing(facts.cluster):
		return corev1alpha1.LogicalClusterPhaseInitializing
	case facts.cluster != nil:
		return corev1alpha1.LogicalClusterPhaseReady
	case notStarted(workspace.Status.Phase):
		return corev1alpha1.LogicalClusterPhaseInitializing
	default:
		return workspace.Status.Phase
	}
}

// unavailable reports whether a condition of the workspace is False, except while it is initialized.
func unavailable(conditions conditionsv1alpha1.Conditions) bool {
	return slices.ContainsFunc(conditions, func(c conditionsv1alpha1.Condition) bool {
		return c.Status == corev1.ConditionFalse && strings.HasPrefix(string(c.Type), "Workspace") &&
			(c.Type != corev1alpha1.WorkspaceInitialized || c.Reason != corev1alpha1.ReasonInitializerExists)
	})
}

// setDeletingStatus updates the status of a workspace that is being deleted. cluster is nil once it is removed.
func setDeletingStatus(workspace *tenancyv1alpha1.Workspace, cluster *corev1alpha1.LogicalCluster) {
	workspace.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
	if cluster == nil {
		return
	}
	workspace.Status.Terminators = slices.Clone(cluster.Status.Terminators)
	if len(cluster.Status.Terminators) > 0 {
		workspace.Status.Phase = corev1alpha1.LogicalClusterPhaseTerminating
	}
	if condition := conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted); condition != nil {
		conditionsv1alpha1.Set(workspace, *condition)
	}
}

// notStarted reports whether a logical cluster or workspace in this phase is before initialization.
func notStarted(phase corev1alpha1.LogicalClusterPhaseType) bool {
	return phase == "" || phase == corev1alpha1.LogicalClusterPhaseScheduling
}

// initializing reports whether a logical cluster has not been ready yet.
func initializing(cluster *corev1alpha1.LogicalCluster) bool {
	return notStarted(cluster.Status.Phase) || cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing
}

// markInitializing sets the condition with the remaining initializers, in their order.
func markInitializing(to conditionsv1alpha1.Setter, initializers []corev1alpha1.LogicalClusterInitializer) {
	conditionsv1alpha1.MarkFalse(to, corev1alpha1.WorkspaceInitialized, corev1alpha1.ReasonInitializerExists, conditionsv1alpha1.SeverityInfo,
		"%s", fmt.Sprintf("Initializers still exist: %v", initializers))
}
