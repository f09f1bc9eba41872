package migration

import (
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
)

// Destination is what a shard knows about a migration to it.
type Destination struct {
	// Shard is the name of this shard.
	Shard string
	// Reference is that of the migration, see the function Reference.
	Reference string
	// Migration is nil if it does not exist, which replicas must have confirmed.
	Migration *migrationv1alpha1.LogicalClusterMigration
	// Cluster is the stored LogicalCluster, nil if a consistent read has found none.
	Cluster *corev1alpha1.LogicalCluster
	// Ended is whether the migration for which Cluster arrives does not exist, according to the shard that stores migrations.
	Ended bool
	// Recorded is whether there are records of keys that this migration has copied.
	Recorded bool
	// OriginAborted is whether the origin reports that it has given up.
	OriginAborted bool
}

// DestinationStep is the next action of the destination.
type DestinationStep string

// Steps of the destination.
const (
	DestinationWaits  DestinationStep = ""
	DestinationCopy   DestinationStep = "Copy"   // copy, or go on, and take over
	DestinationFinish DestinationStep = "Finish" // remove the annotation internal.kcp.io/migrating
	DestinationDrop   DestinationStep = "Drop"   // remove the copy
	DestinationForget DestinationStep = "Forget" // remove the records, which nobody needs
)

// Step returns the next action.
func (d Destination) Step() DestinationStep {
	switch {
	case d.isArriving():
		return d.copyStep()
	case d.Recorded:
		return DestinationForget // the copy has become the logical cluster
	case d.Migration == nil || d.Migration.Spec.DestinationShard != d.Shard:
		return DestinationWaits
	case d.arrived() && d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize:
		return DestinationFinish
	case d.Cluster == nil && d.isMigrating() && !isGivenUp(d.Migration) && isPlaced(d.Migration) && !belongsToShard(logicalClusterOf(d.Migration)):
		return DestinationCopy
	}
	return DestinationWaits // it has arrived, or is the remainder of an earlier move
}

// copyStep returns the next action while there is a copy. It drops the copy only if the origin has not handed it over: the origin has
// aborted, or the migration has ended, which cannot be between the hand-over and the opening of the copy.
func (d Destination) copyStep() DestinationStep {
	switch {
	case d.Ended:
		return DestinationDrop
	case d.Migration == nil || d.Migration.Spec.DestinationShard != d.Shard || !d.arrivesFor(d.Migration):
		return DestinationWaits
	case isGivenUp(d.Migration) && (d.OriginAborted || d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed):
		return DestinationDrop
	case d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, d.isMigrating() && !isGivenUp(d.Migration) && isPlaced(d.Migration):
		return DestinationCopy
	}
	return DestinationWaits
}

// Report returns the report of the destination; nil if this shard is not the destination, or has nothing to report. Progress
// is added by the caller.
func (d Destination) Report() *shardingv1alpha1.LogicalClusterMigrationReportSpec {
	if d.Migration == nil || d.Migration.Spec.DestinationShard != d.Shard || d.origin() == "" || d.origin() == d.Shard {
		return nil
	}
	report := &shardingv1alpha1.LogicalClusterMigrationReportSpec{Migration: d.Migration.UID, State: shardingv1alpha1.MigrationCopying}
	switch {
	case d.isArriving():
	case d.arrived():
		report.State = shardingv1alpha1.MigrationServing
	case d.Cluster != nil && d.hasBeenFinalized():
		report.State = shardingv1alpha1.MigrationFinished
	case isGivenUp(d.Migration):
		report.State = shardingv1alpha1.MigrationDropped
	}
	return report
}

func (d Destination) origin() string { return d.Migration.Status.OriginShard }

func (d Destination) isMigrating() bool {
	if d.origin() == "" || d.origin() == d.Shard {
		return false
	}
	return d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseMigrating
}

func (d Destination) isArriving() bool {
	return d.Cluster != nil && movestate.Of(d.Cluster.Annotations) == movestate.Arriving && d.isMine()
}

// arrivesFor reports whether the copy is that of a migration, and not of an earlier one of the same name.
func (d Destination) arrivesFor(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return d.Cluster.Annotations[corev1alpha1.ArrivingAnnotationKey] == string(migration.UID)
}

func (d Destination) arrived() bool {
	return d.Cluster != nil && d.isMine() && !movestate.Of(d.Cluster.Annotations).IsHidden()
}

func (d Destination) isMine() bool {
	return d.Cluster.Annotations[corev1alpha1.MigratingAnnotationKey] == d.Reference
}

func (d Destination) hasBeenFinalized() bool {
	return d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize ||
		d.Migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
}
