package migration

import (
	"cmp"
	"fmt"
	"slices"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Origin is what a shard knows about a migration of a logical cluster that it has or had.
type Origin struct {
	// Shard is the name of this shard.
	Shard string
	// Reference is that of the migration, see the function Reference.
	Reference string
	// Migration is nil if it does not exist, which replicas must have confirmed.
	Migration *migrationv1alpha1.LogicalClusterMigration
	// Cluster is the stored LogicalCluster, nil if a consistent read has found none.
	Cluster *corev1alpha1.LogicalCluster
	// Serving is whether the destination reports that it serves the logical cluster.
	Serving bool
	// Holds is the name of a migration in the logical cluster that has not ended, or "".
	Holds string
	// Above is what the migration moves that has created this one; nil for one that an administrator has created.
	Above *Above
	// ParentKnows is whether the Workspace of the logical cluster names the destination, or does not exist.
	ParentKnows bool
}

// OriginStep is the next action of the origin.
type OriginStep string

// Steps of the origin.
const (
	OriginWaits  OriginStep = ""
	OriginAccept OriginStep = "Accept" // write the annotation internal.kcp.io/migrating
	OriginAbort  OriginStep = "Abort"  // remove the annotations, which ends the pause of writes
	OriginClean  OriginStep = "Clean"  // delete all keys of the logical cluster
)

// Step returns the next action.
func (o Origin) Step() OriginStep {
	switch {
	case o.Cluster == nil:
		return OriginWaits
	case o.movedAway():
		if o.isMine() && o.wasHandedOver() && o.movedToDestination() && o.Serving && o.ParentKnows {
			return OriginClean
		}
		return OriginWaits
	case o.isMine() && (o.isDestination() || o.arriving()):
		return OriginWaits
	case o.isMine() && (isGivenUp(o.Migration) || o.Cluster.DeletionTimestamp != nil):
		return OriginAbort
	case o.migrating() == "" && !isGivenUp(o.Migration) && o.Migration.Status.OriginShard == "" && isKept(o.Migration) && o.refusal() == nil:
		return OriginAccept
	}
	return OriginWaits
}

// Report returns the report of the origin; nil if this shard is not the origin.
func (o Origin) Report() *shardingv1alpha1.LogicalClusterMigrationReportSpec {
	if o.Migration == nil {
		return nil
	}
	report := &shardingv1alpha1.LogicalClusterMigrationReportSpec{Migration: o.Migration.UID}
	isOrigin := o.Migration.Status.OriginShard == o.Shard
	switch {
	case o.Cluster == nil && !isOrigin:
		return nil
	case o.Cluster == nil && o.wasHandedOver():
		report.State = shardingv1alpha1.MigrationCleaned
	case o.Cluster == nil:
		report.State = shardingv1alpha1.MigrationAborted // it was deleted
	case o.movedAway() && o.isMine():
		report.State = shardingv1alpha1.MigrationMovedAway
	case isOrigin && o.isOutdated() && o.movedToDestination(): // what is left stays, because nothing proves that the destination has all of it
		report.State = shardingv1alpha1.MigrationMovedAway
		if o.wasHandedOver() {
			report.State = shardingv1alpha1.MigrationCleaned
		}
	case o.isMine() && (o.isDestination() || o.arriving()):
		return nil
	case o.isMine():
		report.State = shardingv1alpha1.MigrationAccepted // also until the step Abort is done
		report.Owner, report.ParentShard = o.Cluster.Spec.Owner, cmp.Or(o.annotation(corev1alpha1.OwnerShardAnnotationKey), o.Shard)
		report.Path = o.annotation(corev1alpha1.LogicalClusterPathAnnotationKey)
	case isOrigin:
		report.State = shardingv1alpha1.MigrationAborted
	case hasEnded(o.Migration), o.Migration.Status.OriginShard != "":
		return nil
	default:
		refusal := o.refusal()
		if refusal == nil {
			return nil // Accept follows
		}
		report.State, report.Reason, report.Message = shardingv1alpha1.MigrationRefused, refusal.reason, refusal.message
	}
	return report
}

type refusal struct{ reason, message string }

// refusal returns why the logical cluster cannot be moved by this migration, or nil.
func (o Origin) refusal() *refusal {
	name := logicalcluster.Of(o.Cluster)
	switch other := o.migrating(); {
	case other != "" && other != o.Reference:
		return &refusal{migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating, fmt.Sprintf("logical cluster is already migrating with %q", other)}
	case o.Migration.Spec.DestinationShard == o.Shard:
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, fmt.Sprintf("the logical cluster is on shard %q already", o.Shard)}
	case o.isInside(name):
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, "the logical cluster contains this migration; create it in another workspace"}
	case belongsToShard(name):
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, "the logical cluster belongs to its shard"}
	case o.Holds != "":
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, fmt.Sprintf("the logical cluster contains migration %q, which has not ended: wait, or delete it", o.Holds)}
	case o.Cluster.Spec.Owner == nil:
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, "the logical cluster has no Workspace, so that nobody could find it on another shard"}
	case o.Cluster.DeletionTimestamp != nil:
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, "the logical cluster is being deleted"}
	case o.Cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady:
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, fmt.Sprintf("the logical cluster is in phase %s, not Ready", o.Cluster.Status.Phase)}
	case len(ownerOf(o.Migration)) > 0 && !o.Above.contains(o.Cluster):
		return &refusal{migrationv1alpha1.ReasonLogicalClusterNotMovable, "this shard does not know that the logical cluster is below the one that is moved with its children: " +
			"create a migration of it, or one that includes children of the logical cluster that has its Workspace"}
	}
	return nil
}

// belongsToShard reports whether a logical cluster never leaves its shard.
func belongsToShard(name logicalcluster.Name) bool {
	return name == logicalcluster.Root || name.IsSystem()
}

// isKept reports whether a migration has the finalizer without which it could be deleted before its shards have received its end.
func isKept(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return slices.Contains(migration.Finalizers, migrationv1alpha1.MigrationFinalizer)
}

// AnswersTo reports whether the origin answers requests of a shard: of the one to which it moves the logical cluster, from when the
// shard of the Workspace has allowed that, and after the hand-over of none but the one that has got it. During a pause of writes the verdict
// does not count any more: who paused them can end that.
func (o Origin) AnswersTo(shard string) bool {
	m := o.Migration
	switch {
	case m == nil || o.Cluster == nil || shard == "" || shard == o.Shard || shard != m.Spec.DestinationShard,
		m.Status.OriginShard != o.Shard || !o.isMine() || o.arriving():
		return false
	case o.movedAway():
		return o.movedToDestination()
	}
	_, paused := pausedUntil(o.Cluster)
	return m.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseMigrating && (isPlaced(m) || paused) && !isGivenUp(m)
}

// movedToDestination reports whether the logical cluster was handed over to the destination of this migration, and not to that of an
// earlier one of the same name.
func (o Origin) movedToDestination() bool {
	return o.Migration != nil && o.annotation(corev1alpha1.MovedToAnnotationKey) == o.Migration.Spec.DestinationShard
}

// isInside reports whether the migration is in a logical cluster.
func (o Origin) isInside(cluster logicalcluster.Name) bool {
	key, ok := ParseReference(o.Reference)
	return ok && key.ClusterName == cluster
}

func (o Origin) annotation(key string) string { return o.Cluster.Annotations[key] }
func (o Origin) migrating() string            { return o.annotation(corev1alpha1.MigratingAnnotationKey) }
func (o Origin) isMine() bool                 { return o.migrating() == o.Reference }
func (o Origin) movedAway() bool              { return movestate.Of(o.Cluster.Annotations) == movestate.MovedAway }

// isOutdated reports whether the shard was restored to a state before the hand-over, and has received a proof of it since.
func (o Origin) isOutdated() bool {
	return o.movedAway() && o.annotation(corev1alpha1.OutdatedAnnotationKey) != ""
}

func (o Origin) arriving() bool { return movestate.Of(o.Cluster.Annotations) == movestate.Arriving }

// isDestination reports whether another shard is the origin, so that the annotation on the LogicalCluster is that of a
// logical cluster that has arrived.
func (o Origin) isDestination() bool {
	return o.Migration != nil && o.Migration.Status.OriginShard != "" && o.Migration.Status.OriginShard != o.Shard
}

// wasHandedOver reports whether the migration is in a phase that follows the switch.
func (o Origin) wasHandedOver() bool { return o.Migration != nil && wasHandedOver(o.Migration) }
