package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

// childrenService reports to the home which logical cluster below a moved one is to be moved next. The destination has the
// Workspaces of every logical cluster that it serves, so that no other shard needs to read the children of a tenant.
type childrenService struct {
	cfg Config
	reader
}

// report adds the children to the report of this shard on a migration. A logical cluster that has been on the destination
// before has finished its own move: this is how a migration moves what an earlier one has left.
func (c *childrenService) report(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration, own *shardingv1alpha1.LogicalClusterMigrationReportSpec) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	if !includesChildren(migration) || migration.Spec.DestinationShard != c.cfg.Shard || isGivenUp(migration) {
		return own, nil
	}
	switch migration.Status.Phase {
	case "", migrationv1alpha1.LogicalClusterMigrationPhasePreparing, migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize:
	default:
		return own, nil
	}
	name, err := logicalcluster.ParseName(migration.Spec.LogicalCluster)
	if err != nil {
		return own, nil //nolint:nilerr // the API refuses such a name
	}
	cluster, err := c.cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if cluster == nil || cluster.DeletionTimestamp != nil || isMoving(cluster) {
		return own, nil
	}
	children, err := c.next(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return &shardingv1alpha1.LogicalClusterMigrationReportSpec{Migration: migration.UID, State: shardingv1alpha1.MigrationFinished, Children: children}, nil
}

// isMoving reports whether a migration of a logical cluster has not ended on this shard.
func isMoving(cluster *corev1alpha1.LogicalCluster) bool {
	return cluster.Annotations[corev1alpha1.MigratingAnnotationKey] != "" || movestate.Of(cluster.Annotations).IsHidden()
}

// next returns the first logical cluster below another one that is not on this shard.
func (c *childrenService) next(ctx context.Context, top *corev1alpha1.LogicalCluster) (*shardingv1alpha1.MigrationChildren, error) {
	path, err := logicalcluster.ParsePath(top.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey])
	if err != nil {
		path = logicalcluster.Of(top).Path()
	}
	name := logicalcluster.Of(top)
	found, err := c.firstElsewhere(ctx, name, path, map[logicalcluster.Name]bool{name: true})
	if err != nil || found == nil {
		return &shardingv1alpha1.MigrationChildren{}, err
	}
	return found, nil
}

// firstElsewhere returns the first Workspace, of those in a logical cluster and below, whose logical cluster is on another
// shard; nil if there is none. Mounts have no logical cluster. Workspaces may have come from another shard: only those count of the
// logical clusters here that these belong to, and each logical cluster once.
func (c *childrenService) firstElsewhere(ctx context.Context, in logicalcluster.Name, path logicalcluster.Path, visited map[logicalcluster.Name]bool) (*shardingv1alpha1.MigrationChildren, error) {
	all, err := c.workspaces.List(logicalcluster.With(ctx, in), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces in %q: %w", in, err)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *tenancyv1alpha1.Workspace) int { return cmp.Compare(a.Name, b.Name) })
	for _, workspace := range all {
		name, err := logicalcluster.ParseName(workspace.Spec.Cluster)
		if err != nil || workspace.Spec.Mount != nil || workspace.DeletionTimestamp != nil || belongsToShard(name) || visited[name] {
			continue
		}
		visited[name] = true
		if workspace.Annotations[corev1alpha1.ShardAnnotationKey] != c.cfg.Shard {
			return &shardingv1alpha1.MigrationChildren{Next: name.String(), Workspace: path.Join(workspace.Name).String()}, nil
		}
		child, err := c.cluster(ctx, name)
		if err != nil {
			return nil, err
		}
		if child == nil || !placement.OwnedBy(child, placement.Owner(in, workspace)) {
			continue
		}
		if found, err := c.firstElsewhere(ctx, name, path.Join(workspace.Name), visited); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// mapMigration maps a migration to itself, and to the one that has created it.
func mapMigration(event watch.Event) []controller.Request {
	keys := controller.RequestForObject(event)
	if migration, ok := event.Object.(*migrationv1alpha1.LogicalClusterMigration); ok {
		keys = append(keys, ownerOf(migration)...)
	}
	return keys
}

// ownerOf returns the migration that has created another one for a child, if there is one.
func ownerOf(migration *migrationv1alpha1.LogicalClusterMigration) []controller.Request {
	owner := metav1.GetControllerOf(migration)
	if owner == nil || owner.Kind != migrationKind {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(migration), Name: owner.Name}}
}

// isOwnedBy reports whether a migration has created another one, by its UID.
func isOwnedBy(child, owner *migrationv1alpha1.LogicalClusterMigration) bool {
	return metav1.IsControlledBy(child, owner)
}

// childrenOf returns the migrations that a migration has created.
func (r reader) childrenOf(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration) ([]*migrationv1alpha1.LogicalClusterMigration, error) {
	if !includesChildren(migration) {
		return nil, nil
	}
	all, err := r.migrations.List(logicalcluster.With(ctx, logicalcluster.Of(migration)), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the migrations of children: %w", err)
	}
	var children []*migrationv1alpha1.LogicalClusterMigration
	for _, one := range all {
		if isOwnedBy(one, migration) {
			children = append(children, one)
		}
	}
	return children, nil
}
