package migration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	migrations      = migrationv1alpha1.Resource("logicalclustermigrations")
	reports         = shardingv1alpha1.Resource("logicalclustermigrationreports")
	requests        = shardingv1alpha1.Resource("logicalclusterrequests")
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	shards          = corev1alpha1.Resource("shards")
)

// reader reads what migrations depend on.
type reader struct {
	registry *storage.Registry
	// isHome is whether this shard stores migrations. On another one, migrations in its own storage do not count, because a logical cluster
	// that was copied to it may contain any.
	isHome     bool
	migrations *storage.Reader[*migrationv1alpha1.LogicalClusterMigration]
	own        *storage.Reader[*migrationv1alpha1.LogicalClusterMigration] // migrations that this shard stores
	reports    *storage.Reader[*shardingv1alpha1.LogicalClusterMigrationReport]
	requests   *storage.Reader[*shardingv1alpha1.LogicalClusterRequest]
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
}

func newReader(registry *storage.Registry, isHome bool) reader {
	return reader{
		registry: registry, isHome: isHome,
		migrations: storage.NewReader[*migrationv1alpha1.LogicalClusterMigration](registry, migrations).Global(),
		own:        storage.NewReader[*migrationv1alpha1.LogicalClusterMigration](registry, migrations),
		reports:    storage.NewReader[*shardingv1alpha1.LogicalClusterMigrationReport](registry, reports).Global(),
		requests:   storage.NewReader[*shardingv1alpha1.LogicalClusterRequest](registry, requests).Global(),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters),
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](registry, workspaces),
	}
}

// migration returns a migration of the shard that stores them; nil if it does not exist. While the migrations of other shards are not
// synced, a missing one is an error.
func (r reader) migration(ctx context.Context, key controller.Request) (*migrationv1alpha1.LogicalClusterMigration, error) {
	if !r.isHome {
		if found, published := r.registry.RemoteStore().Get(migrations, key.ClusterName, "", key.Name); published {
			if migration, ok := found.(*migrationv1alpha1.LogicalClusterMigration); ok {
				return migration, nil
			}
		}
		if err := r.migrations.CheckSynced(); err != nil {
			return nil, fmt.Errorf("reading migration %q in %q: %w", key.Name, key.ClusterName, err)
		}
		return nil, nil
	}
	migration, err := r.migrations.Get(logicalcluster.With(ctx, key.ClusterName), "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading migration %q in %q: %w", key.Name, key.ClusterName, err)
	}
	return migration, nil
}

// allMigrations returns the migrations of the shard that stores them.
func (r reader) allMigrations(ctx context.Context) ([]*migrationv1alpha1.LogicalClusterMigration, error) {
	if r.isHome {
		return r.migrations.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	}
	var all []*migrationv1alpha1.LogicalClusterMigration
	for _, found := range r.registry.RemoteStore().List(migrations, logicalcluster.Wildcard) {
		if migration, ok := found.(*migrationv1alpha1.LogicalClusterMigration); ok {
			all = append(all, migration)
		}
	}
	return all, nil
}

// isStored reports whether this shard stores a migration, by a consistent read.
func (r reader) isStored(ctx context.Context, key controller.Request, uid types.UID) (bool, error) {
	migration, err := r.own.GetLatest(logicalcluster.With(ctx, key.ClusterName), "", key.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && migration.UID == uid, err
}

// clusterName returns the logical cluster of a migration. That of a migration which does not exist is the one that has its
// annotation.
func (r reader) clusterName(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration) (logicalcluster.Name, bool) {
	if migration != nil {
		name, err := logicalcluster.ParseName(migration.Spec.LogicalCluster)
		return name, err == nil
	}
	all, err := r.clusters.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return logicalcluster.Name{}, false
	}
	for _, cluster := range all {
		if cluster.Annotations[corev1alpha1.MigratingAnnotationKey] == Reference(key.ClusterName, key.Name) {
			return logicalcluster.Of(cluster), true
		}
	}
	return logicalcluster.Name{}, false
}

// cluster returns the LogicalCluster on this shard; nil if a consistent read finds none.
func (r reader) cluster(ctx context.Context, name logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	ctx = logicalcluster.With(ctx, name)
	cluster, err := r.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		cluster, err = r.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", name, err)
	}
	return cluster, nil
}

// reportsOn returns the reports on a migration by the shards that have published them, without those on an earlier migration
// of the same name.
func (r reader) reportsOn(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration) (map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	all, err := r.reports.List(logicalcluster.With(ctx, key.ClusterName), "", nil)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the reports on migration %q in %q: %w", key.Name, key.ClusterName, err)
	}
	found := map[string]shardingv1alpha1.LogicalClusterMigrationReportSpec{}
	for _, report := range all {
		if report.Name == key.Name && report.Spec.Migration == migration.UID {
			found[placement.Publisher(report)] = report.Spec
		}
	}
	return found, nil
}

// reportBy returns the report of one shard on a migration; the zero report if there is none.
func (r reader) reportBy(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration, shard string) (shardingv1alpha1.LogicalClusterMigrationReportSpec, error) {
	all, err := r.reportsOn(ctx, key, migration)
	return all[shard], err
}

// sources returns the sources of everything that the state of a migration on this shard depends on.
func (r reader) sources() []controller.Source {
	return []controller.Source{
		{Resource: migrations, Global: true, MapFunc: mapMigration},
		{Resource: shards, Global: true, MapFunc: r.mapShard},
		{Resource: reports, Global: true, MapFunc: controller.RequestForObject},
		{Resource: logicalClusters, MapFunc: r.mapCluster},
		{Resource: requests, Global: true, MapFunc: r.mapRequest},
		{Resource: workspaces, MapFunc: r.mapWorkspace},
	}
}

// mapCluster maps a LogicalCluster to the migration of its annotation, and to all that name it: a change may have removed the
// annotation. One that arrives is changed by each attempt to copy, which the change must not repeat at once.
func (r reader) mapCluster(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok || event.Type == watch.Modified && movestate.Of(cluster.Annotations) == movestate.Arriving {
		return nil
	}
	keys := r.migrationsOf(logicalcluster.Of(cluster).String())
	if key, ok := ParseReference(cluster.Annotations[corev1alpha1.MigratingAnnotationKey]); ok {
		keys = append(keys, key)
	}
	return keys
}

// mapRequest maps the request of the shard of a Workspace to the migrations of the logical cluster.
func (r reader) mapRequest(event watch.Event) []controller.Request {
	request, ok := event.Object.(*shardingv1alpha1.LogicalClusterRequest)
	if !ok {
		return nil
	}
	return r.migrationsOf(request.Spec.Cluster)
}

// mapWorkspace maps a Workspace to the migrations of its logical cluster.
func (r reader) mapWorkspace(event watch.Event) []controller.Request {
	workspace, ok := event.Object.(*tenancyv1alpha1.Workspace)
	if !ok || workspace.Spec.Cluster == "" {
		return nil
	}
	return r.migrationsOf(workspace.Spec.Cluster)
}

// migrationsOf returns the migrations of a logical cluster, and those that have created them. There are few migrations at any
// time.
func (r reader) migrationsOf(cluster string) []controller.Request {
	var owners []controller.Request
	keys := controller.RequestsForObjects(r.migrations, logicalcluster.Wildcard, func(migration *migrationv1alpha1.LogicalClusterMigration) bool {
		if migration.Spec.LogicalCluster != cluster {
			return false
		}
		owners = append(owners, ownerOf(migration)...)
		return true
	})
	return append(keys, owners...)
}
