package doctor

import (
	"fmt"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
)

// stalledMoves finds moves of workspaces that make no progress.
func stalledMoves(facts *Facts, _ Limits) []Finding {
	var found []Finding
	for _, move := range facts.Moves {
		progressing := move.Conditions.Get(string(migrationv1alpha1.Progressing))
		if progressing.Status != "False" {
			continue
		}
		found = append(found, Finding{
			Severity: SeverityWarning, Object: "LogicalClusterMigration " + move.Name,
			Message: fmt.Sprintf("makes no progress in phase %s: logical cluster %s to shard %s", move.Phase, move.LogicalCluster, move.To), Detail: progressing.Message,
			NextStep: "The condition Progressing has the next step. To give up, delete the migration in root",
		})
	}
	var counted []Finding // by shards, of migrations in all workspaces
	stalled := 0
	for _, server := range facts.Servers {
		for _, sample := range server.Metrics[metricMigrations] {
			if sample.Labels["state"] == "stalled" && sample.Value > 0 {
				stalled += int(sample.Value)
				counted = append(counted, Finding{
					Severity: SeverityWarning, Object: "shard " + server.Name, Message: fmt.Sprintf("%.0f moves of workspaces make no progress", sample.Value),
					NextStep: "Look at the LogicalClusterMigrations in the workspaces that bind migration.kcp.io: the condition Progressing has the next step",
				})
			}
		}
	}
	if stalled > len(found) {
		found = append(found, counted...)
	}
	return found
}
