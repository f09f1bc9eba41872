package migration

import (
	"time"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
)

// noProgressAfter is the time without a change after which the condition Progressing of a migration is False.
const noProgressAfter = 10 * time.Minute

// markProgress sets the condition Progressing of a migration, and returns when to call it again; 0 for never. The last
// change of another condition is the last progress: their messages have the number of objects that were copied.
func markProgress(m *migrationv1alpha1.LogicalClusterMigration, now time.Time) time.Duration {
	if hasEnded(m) {
		conditionsv1alpha1.Delete(m, migrationv1alpha1.Progressing)
		return 0
	}
	last := m.CreationTimestamp.Time
	others := m.DeepCopy()
	conditionsv1alpha1.Delete(others, migrationv1alpha1.Progressing)
	for _, condition := range others.Status.Conditions {
		if condition.LastTransitionTime.After(last) {
			last = condition.LastTransitionTime.Time
		}
	}
	if wait := last.Add(noProgressAfter).Sub(now); wait > 0 {
		conditionsv1alpha1.Delete(m, migrationv1alpha1.Progressing)
		return wait
	}
	reason := ": no shard has the logical cluster, or the one that has it does not run or has the feature gate LogicalClusterMigration disabled"
	if m.Status.OriginShard != "" {
		reason = openCondition(others)
	}
	conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.Progressing, migrationv1alpha1.ReasonNoProgress, conditionsv1alpha1.SeverityWarning,
		"nothing has changed since %s%s. %s", last.UTC().Format(time.RFC3339), reason, progressAdvice(m))
	return 0
}

func progressAdvice(m *migrationv1alpha1.LogicalClusterMigration) string {
	switch m.Status.Phase {
	case migrationv1alpha1.LogicalClusterMigrationPhasePreparing, migrationv1alpha1.LogicalClusterMigrationPhaseMigrating:
		return "The logical cluster stays usable meanwhile; delete the migration to give up"
	case migrationv1alpha1.LogicalClusterMigrationPhaseAborting:
		return "The migration ends when both shards run, and have removed what they copied"
	}
	return "The logical cluster was handed over: the migration goes on when both shards run, and their etcds accept writes"
}
