package migration

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// parentService updates the logical clusters of this shard whose parent has moved: each has the name of the shard of its
// Workspace, which moves with the parent. That shard alone can move or delete it. The change is the word of the shard that
// has had the parent until then.
type parentService struct {
	cfg Config
	reader
	stored *storedClusters
	// ownReport returns the report of this shard on a migration, or nil.
	ownReport func(context.Context, controller.Request) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error)
}

// isFollowed reports whether the origin has handed over to the destination, and this still has the logical cluster: a report
// on an earlier move stays as long as its migration.
func isFollowed(origin, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) bool {
	handedOver := origin.State == shardingv1alpha1.MigrationMovedAway || origin.State == shardingv1alpha1.MigrationCleaned
	return handedOver && (destination.State == shardingv1alpha1.MigrationServing || destination.State == shardingv1alpha1.MigrationFinished)
}

func (p *parentService) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	migration, err := p.migration(ctx, key)
	if err != nil || migration == nil {
		return controller.Result{}, err
	}
	from, to := migration.Status.OriginShard, migration.Spec.DestinationShard
	if from == "" || from == to {
		return controller.Result{}, nil
	}
	children, err := p.childrenAt(ctx, migration.Spec.LogicalCluster, from)
	if err != nil || len(children) == 0 {
		return controller.Result{}, err
	}
	all, err := p.reportsOn(ctx, key, migration)
	if err != nil {
		return controller.Result{}, err
	}
	own, err := p.ownReport(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if own != nil {
		all[p.cfg.Shard] = *own
	}
	if !isFollowed(all[from], all[to]) {
		return controller.Result{}, nil
	}
	for _, child := range children {
		if err := p.follow(ctx, child, from, to); err != nil {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, nil
}

// childrenAt returns the logical clusters of this shard whose Workspaces are in a logical cluster on a shard.
func (p *parentService) childrenAt(ctx context.Context, parent, shard string) ([]logicalcluster.Name, error) {
	all, err := p.clusters.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the logical clusters: %w", err)
	}
	var children []logicalcluster.Name
	for _, cluster := range all {
		if owner := cluster.Spec.Owner; owner != nil && owner.Cluster == parent && p.parentShard(cluster.Annotations) == shard {
			children = append(children, logicalcluster.Of(cluster))
		}
	}
	return children, nil
}

// parentShard returns the shard of the Workspace of a logical cluster.
func (p *parentService) parentShard(annotations map[string]string) string {
	return cmp.Or(annotations[corev1alpha1.OwnerShardAnnotationKey], p.cfg.Shard)
}

// follow stores the new shard of the Workspace of a logical cluster. This works while the logical cluster moves itself, too:
// the origin needs the shard that can confirm that the Workspace has the destination.
func (p *parentService) follow(ctx context.Context, child logicalcluster.Name, from, to string) error {
	_, err := p.stored.update(ctx, child, func(_ *storedCluster, annotations map[string]string) error {
		switch {
		case p.parentShard(annotations) != from:
		case to == p.cfg.Shard:
			delete(annotations, corev1alpha1.OwnerShardAnnotationKey)
		default:
			annotations[corev1alpha1.OwnerShardAnnotationKey] = to
		}
		return nil
	})
	if err != nil {
		return asStatus(err)
	}
	klog.FromContext(ctx).Info("The Workspace of a logical cluster has moved to another shard", "cluster", child, "from", from, "to", to)
	return nil
}

// sources are those of migrations, and LogicalClusters: one may arrive after its parent has moved.
func (p *parentService) sources() []controller.Source {
	return []controller.Source{
		{Resource: migrations, Global: true, MapFunc: controller.RequestForObject},
		{Resource: reports, Global: true, MapFunc: controller.RequestForObject},
		{Resource: logicalClusters, MapFunc: func(event watch.Event) []controller.Request {
			cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
			if !ok || event.Type == watch.Deleted {
				return nil
			}
			keys := p.migrationsOf(logicalcluster.Of(cluster).String())
			if cluster.Spec.Owner != nil {
				keys = append(keys, p.migrationsOf(cluster.Spec.Owner.Cluster)...)
			}
			return keys
		}},
	}
}
