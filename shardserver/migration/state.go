package migration

import (
	"strconv"
	"strings"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// Reference returns the value of the annotation internal.kcp.io/migrating for a migration.
func Reference(cluster logicalcluster.Name, name string) string { return cluster.String() + ":" + name }

// ParseReference parses the value of the annotation internal.kcp.io/migrating.
func ParseReference(value string) (controller.Request, bool) {
	text, name, _ := strings.Cut(value, ":")
	cluster, err := logicalcluster.ParseName(text)
	if err != nil || name == "" {
		return controller.Request{}, false
	}
	return controller.Request{ClusterName: cluster, Name: name}, true
}

// Epoch returns how often a logical cluster has moved.
func Epoch(cluster *corev1alpha1.LogicalCluster) int64 {
	epoch, _ := strconv.ParseInt(cluster.Annotations[corev1alpha1.EpochAnnotationKey], 10, 64)
	return epoch
}

// hasEnded reports whether a migration has reached its last phase.
func hasEnded(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted ||
		migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed
}

// wasHandedOver reports whether a migration is in a phase that follows the switch.
func wasHandedOver(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	switch migration.Status.Phase {
	case migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize,
		migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
		return true
	}
	return false
}

// isPlaced reports whether the shard of the Workspace has allowed to place the logical cluster on the destination.
func isPlaced(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.PlacementAllowed)
}

// isGivenUp reports whether a migration is to be aborted, if the logical cluster has not been handed over. A migration that
// does not exist is nil.
func isGivenUp(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return migration == nil || migration.DeletionTimestamp != nil || hasEnded(migration) ||
		migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseAborting
}
