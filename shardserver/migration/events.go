package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
)

// eventSource is the component of events.
const eventSource = "logical-cluster-migration"

// Results of migrations, for events and metrics.
const (
	resultCompleted = "completed"
	resultAborted   = "aborted"
	resultFailed    = "failed"
)

// event is what users see of a step of a migration.
type event struct{ kind, reason, message string }

// events returns what happened between two states of a migration.
func events(before, after *migrationv1alpha1.LogicalClusterMigration) []event {
	var all []event
	from, to := after.Status.OriginShard, after.Spec.DestinationShard
	if before.Status.OriginShard == "" && from != "" {
		all = append(all, event{corev1.EventTypeNormal, "Started", fmt.Sprintf("Moving logical cluster %s from shard %s to shard %s", after.Spec.LogicalCluster, from, to)})
	}
	placement := conditionsv1alpha1.Get(after, migrationv1alpha1.PlacementAllowed)
	if placement != nil && placement.Severity == conditionsv1alpha1.SeverityWarning && placement.Reason != conditionsv1alpha1.GetReason(before, migrationv1alpha1.PlacementAllowed) {
		all = append(all, event{corev1.EventTypeWarning, "PlacementRefused", placement.Message})
	}
	cleaned := conditionsv1alpha1.Get(after, migrationv1alpha1.OriginCleaned)
	if cleaned != nil && cleaned.Severity == conditionsv1alpha1.SeverityWarning && cleaned.Reason != conditionsv1alpha1.GetReason(before, migrationv1alpha1.OriginCleaned) {
		all = append(all, event{corev1.EventTypeWarning, cleaned.Reason, cleaned.Message})
	}
	if reason := conditionsv1alpha1.GetReason(after, migrationv1alpha1.DataCopied); reason == migrationv1alpha1.ReasonDestinationFull && reason != conditionsv1alpha1.GetReason(before, migrationv1alpha1.DataCopied) {
		all = append(all, event{corev1.EventTypeWarning, reason, conditionsv1alpha1.GetMessage(after, migrationv1alpha1.DataCopied)})
	}
	if before.Status.Phase == after.Status.Phase {
		return all
	}
	switch after.Status.Phase {
	case migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup:
		all = append(all, event{corev1.EventTypeNormal, "HandedOver", fmt.Sprintf("Shard %s has handed over to shard %s", from, to)})
	case migrationv1alpha1.LogicalClusterMigrationPhaseAborting:
		all = append(all, event{corev1.EventTypeNormal, "Aborting", fmt.Sprintf("The logical cluster stays on shard %s", from)})
	}
	switch result(after) {
	case resultCompleted:
		all = append(all, event{corev1.EventTypeNormal, "Completed", fmt.Sprintf("Shard %s serves the logical cluster", to)})
	case resultAborted:
		all = append(all, event{corev1.EventTypeNormal, "Aborted", "Nothing of the migration is left"})
	case resultFailed:
		all = append(all, event{corev1.EventTypeWarning, "Failed", "The migration has failed" + openCondition(after)})
	}
	return all
}

// result returns how a migration has ended, or "".
func result(m *migrationv1alpha1.LogicalClusterMigration) string {
	switch {
	case m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
		return resultCompleted
	case m.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseFailed:
		return ""
	case conditionsv1alpha1.IsTrue(m, migrationv1alpha1.Aborted):
		return resultAborted
	}
	return resultFailed
}

// record creates events about what happened between two states of a migration, after the second one is stored. Events
// are in the workspace of the migration, never in that of the logical cluster.
func (h *homeController) record(ctx context.Context, before, after *migrationv1alpha1.LogicalClusterMigration) {
	if ended := result(after); ended != "" && result(before) == "" {
		ends.WithLabelValues(ended).Inc()
	}
	for _, one := range events(before, after) {
		now := metav1.Now()
		object := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: after.Name[:min(len(after.Name), maxParentName)] + "."},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: migrationv1alpha1.SchemeGroupVersion.String(), Kind: migrationKind,
				Name: after.Name, UID: after.UID, ResourceVersion: after.ResourceVersion,
			},
			Type: one.kind, Reason: one.reason, Message: one.message[:min(len(one.message), maxEventMessage)],
			Source:         corev1.EventSource{Component: eventSource},
			FirstTimestamp: now, LastTimestamp: now, Count: 1,
		}
		ctx, cancel := context.WithTimeout(ctx, eventTimeout)
		err := h.cfg.Clients.Typed.Create(ctx, object)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Failed to store an event of a migration", "migration", after.Name, "reason", one.reason, "err", err)
		}
	}
}

// Limits of an event. Kubernetes refuses longer messages.
const (
	maxEventMessage = 1024
	eventTimeout    = 5 * time.Second
)
