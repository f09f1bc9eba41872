package migration

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// Home is what the shard that stores a migration knows about it.
type Home struct {
	Migration *migrationv1alpha1.LogicalClusterMigration
	// Reports are the reports on this migration, by the name of the shard that has published each.
	Reports map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec
	// Children are the migrations that this one has created.
	Children []*migrationv1alpha1.LogicalClusterMigration
}

// Status returns the migration with its new status.
func (h Home) Status() *migrationv1alpha1.LogicalClusterMigration {
	m := h.Migration.DeepCopy()
	if hasEnded(m) {
		return m
	}
	if m.Status.Phase == "" {
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhasePreparing
	}
	if m.Status.OriginShard == "" {
		h.prepare(m)
	}
	origin, destination := h.Reports[m.Status.OriginShard], h.Reports[m.Spec.DestinationShard]
	m.Status.EntriesCopied = max(m.Status.EntriesCopied, destination.Entries)
	if m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseMigrating {
		h.migrate(m, origin, destination)
	}
	if m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseAborting {
		abort(m, origin, destination)
	}
	if m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup {
		cleanUp(m, origin, destination)
	}
	if m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize {
		h.finalize(m, destination)
	}
	return m
}

// prepare looks for the shard that has the logical cluster.
func (h Home) prepare(m *migrationv1alpha1.LogicalClusterMigration) {
	if h.alreadyThere() && m.DeletionTimestamp == nil {
		skipOwnMove(m)
		return
	}
	var accepted []string
	for shard, report := range h.Reports {
		switch report.State {
		case shardingv1alpha1.MigrationAccepted:
			accepted = append(accepted, shard)
		case shardingv1alpha1.MigrationRefused:
			m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
			conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.OriginReady, report.Reason, conditionsv1alpha1.SeverityError, "%s", report.Message)
		}
	}
	slices.Sort(accepted)
	switch {
	case m.DeletionTimestamp != nil && len(accepted) == 0:
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.Aborted)
	case hasEnded(m), len(accepted) == 0:
	case len(accepted) > 1:
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.OriginReady, migrationv1alpha1.ReasonLogicalClusterNotMovable, conditionsv1alpha1.SeverityError,
			"the shards %s claim to have the logical cluster; delete the migration, and find out which of them is wrong", strings.Join(accepted, ", "))
	default:
		m.Status.OriginShard, m.Status.Phase = accepted[0], migrationv1alpha1.LogicalClusterMigrationPhaseMigrating
		if path := h.Reports[accepted[0]].Path; includesChildren(m) && path != "" {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, movedPathAnnotation, path)
		}
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.OriginReady)
	}
}

// migrate sets the status of a migration whose logical cluster is on the origin, or has just left it.
func (h Home) migrate(m *migrationv1alpha1.LogicalClusterMigration, origin, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) {
	switch {
	case origin.State == shardingv1alpha1.MigrationMovedAway:
		handOver(m)
	case origin.State == shardingv1alpha1.MigrationAborted, m.DeletionTimestamp != nil:
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseAborting
	case destination.Reason == migrationv1alpha1.ReasonDestinationFull: // what is copied takes space of others
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, destination.Reason, conditionsv1alpha1.SeverityError,
			"%s. The logical cluster stays on shard %q", destination.Message, m.Status.OriginShard)
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseAborting
	case !h.place(m, origin):
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForPlacement, conditionsv1alpha1.SeverityInfo,
			"nothing is copied until the condition %s is True; the logical cluster stays usable on shard %q", migrationv1alpha1.PlacementAllowed, m.Status.OriginShard)
	case destination.State == "":
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForDestination, conditionsv1alpha1.SeverityInfo,
			"%s", waitingMessage(m))
	case destination.Reason != "":
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, destination.Reason, conditionsv1alpha1.SeverityWarning, "%s", destination.Message)
	default:
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonCopying, conditionsv1alpha1.SeverityInfo,
			"shard %q has copied %d objects; the logical cluster stays usable on shard %q", m.Spec.DestinationShard, m.Status.EntriesCopied, m.Status.OriginShard)
	}
}

// place sets the condition PlacementAllowed by the report of the shard of the Workspace, and returns whether it is True. It
// stays as it is while the origin, which names that shard, reports nothing.
func (h Home) place(m *migrationv1alpha1.LogicalClusterMigration, origin shardingv1alpha1.LogicalClusterMigrationReportSpec) bool {
	placement := h.Reports[origin.ParentShard].Placement
	switch {
	case origin.State != shardingv1alpha1.MigrationAccepted:
	case placement == nil && conditionsv1alpha1.IsTrue(m, migrationv1alpha1.PlacementAllowed):
	case placement == nil:
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.PlacementAllowed, migrationv1alpha1.ReasonWaitingForWorkspaceShard, conditionsv1alpha1.SeverityInfo,
			"shard %q, which has the Workspace, has not decided: it does not run, or has the feature gate LogicalClusterMigration disabled", origin.ParentShard)
	case placement.Allowed:
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.PlacementAllowed)
	case m.Status.EntriesCopied > 0 && conditionsv1alpha1.IsTrue(m, migrationv1alpha1.PlacementAllowed): // a copy that has begun goes on
	default:
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.PlacementAllowed, placement.Reason, conditionsv1alpha1.SeverityWarning, "%s", placement.Message)
	}
	return conditionsv1alpha1.IsTrue(m, migrationv1alpha1.PlacementAllowed)
}

// handOver follows the decision of the origin, which is final.
func handOver(m *migrationv1alpha1.LogicalClusterMigration) {
	m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.PlacementAllowed)
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.DataCopied)
}

func waitingMessage(m *migrationv1alpha1.LogicalClusterMigration) string {
	return fmt.Sprintf("shard %q has not begun to copy: it does not exist, does not run, or has the feature gate LogicalClusterMigration disabled; the logical cluster stays usable on shard %q",
		m.Spec.DestinationShard, m.Status.OriginShard)
}

// abort ends a migration when nothing of it is left. A destination that reports nothing has nothing.
func abort(m *migrationv1alpha1.LogicalClusterMigration, origin, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) {
	switch origin.State {
	case shardingv1alpha1.MigrationAborted:
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.OriginCleaned)
	case shardingv1alpha1.MigrationMovedAway: // the origin has handed over before it learned of the abort
		handOver(m)
		return
	default:
		return
	}
	switch destination.State {
	case "", shardingv1alpha1.MigrationDropped:
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.DestinationCleaned)
	default:
		return
	}
	m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.Aborted)
}

// cleanUp sets the status of a migration whose logical cluster has been handed over.
func cleanUp(m *migrationv1alpha1.LogicalClusterMigration, origin, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) {
	if origin.State != shardingv1alpha1.MigrationCleaned {
		switch {
		case origin.Reason != "":
			conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.OriginCleaned, origin.Reason, conditionsv1alpha1.SeverityWarning, "%s", origin.Message)
		case destination.Reason != "":
			conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.OriginCleaned, destination.Reason, conditionsv1alpha1.SeverityWarning,
				"shard %q has not taken over, and no shard serves the logical cluster: %s", m.Spec.DestinationShard, destination.Message)
		case destination.State == shardingv1alpha1.MigrationServing && conditionsv1alpha1.GetReason(m, migrationv1alpha1.OriginCleaned) != migrationv1alpha1.ReasonKeysNotHandedOver:
			conditionsv1alpha1.Delete(m, migrationv1alpha1.OriginCleaned) // the destination has taken over since
		}
		return
	}
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.OriginCleaned)
	if destination.State == shardingv1alpha1.MigrationServing {
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize
	}
}
