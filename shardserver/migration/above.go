package migration

import (
	"context"
	"fmt"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// movedPathAnnotation on a migration that includes children has the path of its logical cluster, as the origin has reported it.
const movedPathAnnotation = "internal.migration.kcp.io/path"

// Above is what a migration moves that has created another one for a child. The destination has named the child, and Workspaces of the
// moved logical cluster have come from its origin: neither may name a logical cluster of somebody else. Hence the shard that has the
// child decides by its own LogicalCluster.
type Above struct {
	// Moved are the logical clusters that were moved: the one of the migration, and children whose shards have decided in the same way.
	Moved map[string]bool
	// Path is that of the logical cluster of the migration, empty if only its destination has reported it.
	Path string
}

// contains reports whether a logical cluster is below.
func (a *Above) contains(cluster *corev1alpha1.LogicalCluster) bool {
	owner := cluster.Spec.Owner
	if a == nil || owner == nil {
		return false
	}
	if a.Moved[owner.Cluster] {
		return true
	}
	// A path of one segment is that of the tree of all workspaces, or of nothing.
	above, err := logicalcluster.ParsePath(a.Path)
	if err != nil {
		return false
	}
	if _, isName := above.Name(); isName {
		return false
	}
	return isBelow(cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey], above.String())
}

// isBelow reports whether a path is below another one.
func isBelow(path, above string) bool {
	return len(path) > len(above)+1 && path[:len(above)] == above && path[len(above)] == ':'
}

// above returns what a migration moves that has created another one; nil if it does not exist.
func (r reader) above(ctx context.Context, child *migrationv1alpha1.LogicalClusterMigration) (*Above, error) {
	all, err := r.allMigrations(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing migrations: %w", err)
	}
	return aboveOf(child, all), nil
}

// aboveOf is above for all migrations.
func aboveOf(child *migrationv1alpha1.LogicalClusterMigration, all []*migrationv1alpha1.LogicalClusterMigration) *Above {
	owner := ownerAmong(child, all)
	if owner == nil || !includesChildren(owner) {
		return nil
	}
	above := &Above{Moved: map[string]bool{owner.Spec.LogicalCluster: true}, Path: owner.Annotations[movedPathAnnotation]}
	for _, one := range all {
		// An earlier migration of the same logical cluster may have moved some of the children.
		if of := ownerAmong(one, all); of != nil && of.Spec.LogicalCluster == owner.Spec.LogicalCluster && one.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
			above.Moved[one.Spec.LogicalCluster] = true
		}
	}
	return above
}

// ownerAmong returns the migration that has created another one, or nil.
func ownerAmong(child *migrationv1alpha1.LogicalClusterMigration, all []*migrationv1alpha1.LogicalClusterMigration) *migrationv1alpha1.LogicalClusterMigration {
	for _, key := range ownerOf(child) {
		for _, one := range all {
			if one.Name == key.Name && logicalcluster.Of(one) == key.ClusterName && isOwnedBy(child, one) {
				return one
			}
		}
	}
	return nil
}
