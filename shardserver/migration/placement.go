package migration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// placementService decides for Workspaces of this shard whether their logical clusters may be placed on another shard.
type placementService struct {
	cfg Config
	reader
}

// verdict returns whether a logical cluster may be placed on the destination; nil if its Workspace is not on this shard, or
// the migration has come too far for a decision. own is the report of this shard as the origin or the destination.
func (p *placementService) verdict(ctx context.Context, key controller.Request, migration *migrationv1alpha1.LogicalClusterMigration, own *shardingv1alpha1.LogicalClusterMigrationReportSpec) (*shardingv1alpha1.MigrationPlacement, error) {
	if isGivenUp(migration) || !mayBePlaced(migration) {
		return nil, nil
	}
	all, err := p.reportsOn(ctx, key, migration)
	if err != nil {
		return nil, err
	}
	if own != nil {
		all[p.cfg.Shard] = *own
	}
	for origin, report := range all {
		if report.State != shardingv1alpha1.MigrationAccepted || report.ParentShard != p.cfg.Shard || report.Owner == nil {
			continue
		}
		workspace, err := p.workspaceOf(ctx, *report.Owner)
		if err != nil {
			return nil, err
		}
		if workspace == nil {
			continue // the parent has moved to another shard: the origin will name that
		}
		if workspace.UID == report.Owner.UID && (workspace.Spec.Cluster != migration.Spec.LogicalCluster || workspace.Annotations[corev1alpha1.ShardAnnotationKey] != origin) {
			continue // another shard claims to have its logical cluster
		}
		shards, err := p.cfg.Origins.Shards.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the shards: %w", err)
		}
		return Placement{
			Workspace: workspace, Origin: origin, Destination: migration.Spec.DestinationShard, Shards: shards,
			IgnoresSelector: migration.Annotations[migrationv1alpha1.IgnoreSelectorAnnotationKey] == "true",
		}.Verdict(), nil
	}
	return nil, nil
}

// mayBePlaced reports whether the origin has not handed over, so that a verdict has an effect.
func mayBePlaced(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	switch migration.Status.Phase {
	case "", migrationv1alpha1.LogicalClusterMigrationPhasePreparing, migrationv1alpha1.LogicalClusterMigrationPhaseMigrating:
		return true
	}
	return false
}

// workspaceOf returns the Workspace that owns a logical cluster, an empty one if it does not exist, or nil if this shard does
// not have the logical cluster of the Workspace.
func (p *placementService) workspaceOf(ctx context.Context, owner corev1alpha1.LogicalClusterOwner) (*tenancyv1alpha1.Workspace, error) {
	parent, err := logicalcluster.ParseName(owner.Cluster)
	if err != nil {
		return nil, nil //nolint:nilerr // no Workspace can be there
	}
	holder, err := p.cluster(ctx, parent)
	if err != nil || holder == nil || movestate.Of(holder.Annotations).IsHidden() {
		return nil, err
	}
	workspace, err := p.workspaces.GetLatest(logicalcluster.With(ctx, parent), "", owner.Name)
	if apierrors.IsNotFound(err) || err == nil && workspace.UID != owner.UID {
		return &tenancyv1alpha1.Workspace{}, nil // nothing selects shards for what it has left
	}
	if err != nil {
		return nil, fmt.Errorf("reading workspace %q: %w", owner.Name, err)
	}
	return workspace, nil
}

// mapShard maps a Shard to the migrations to it that may wait for a verdict, which depends on the one in root and on the one
// that the shard owns.
func (r reader) mapShard(event watch.Event) []controller.Request {
	shard, ok := event.Object.(*corev1alpha1.Shard)
	if !ok {
		return nil
	}
	return controller.RequestsForObjects(r.migrations, logicalcluster.Wildcard, func(migration *migrationv1alpha1.LogicalClusterMigration) bool {
		return migration.Spec.DestinationShard == shard.Name && mayBePlaced(migration)
	})
}
