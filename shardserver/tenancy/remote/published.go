package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// PublishedSources returns the sources of objects that this shard publishes: its requests to other shards, and its
// reports on their requests.
func PublishedSources(cfg Config) []publisher.Source {
	requestSource := &requestSource{
		cfg:        cfg,
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](cfg.Registry, workspaces),
		reports:    storage.NewReader[*shardingv1alpha1.LogicalClusterReport](cfg.Registry, reports).Global(),
		migrations: storage.NewReader[*migrationv1alpha1.LogicalClusterMigration](cfg.Registry, migrations).Global(),
	}
	reportSource := &reportSource{NewRequestReader(cfg)}
	return []publisher.Source{
		{
			Resource: requests,
			Inputs: []controller.Source{
				{Resource: workspaces, MapFunc: requestSource.mapWorkspace},
				{Resource: reports, Global: true, MapFunc: requestSource.mapReport},
			},
			Desired: requestSource.desired,
		},
		{
			Resource: reports,
			Inputs: []controller.Source{
				{Resource: logicalClusters, MapFunc: reportSource.mapLogicalCluster},
				{Resource: requests, Global: true, MapFunc: reportSource.requests.MapToReport},
			},
			Desired: reportSource.desired,
		},
	}
}

// requestSource derives the requests of this shard from its workspaces.
type requestSource struct {
	cfg        Config
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
	reports    *storage.Reader[*shardingv1alpha1.LogicalClusterReport]
	migrations *storage.Reader[*migrationv1alpha1.LogicalClusterMigration]
}

// mapWorkspace maps a workspace that is scheduled on another shard to the requests for its current and its previous
// logical cluster.
func (r *requestSource) mapWorkspace(event watch.Event) []controller.Request {
	workspace, ok := event.Object.(*tenancyv1alpha1.Workspace)
	if !ok || workspace.Spec.Mount != nil {
		return nil
	}
	var keys []controller.Request
	key := func(cluster logicalcluster.Name) {
		keys = append(keys, controller.Request{ClusterName: logicalcluster.Of(workspace), Name: placement.RequestName(workspace.Name, cluster)})
	}
	if cluster, ok := placement.Cluster(workspace); ok && (workspace.Annotations[corev1alpha1.ShardAnnotationKey] != r.cfg.ShardName || r.isReported(workspace, cluster)) {
		key(cluster)
	}
	if previous, err := logicalcluster.ParseName(workspace.Annotations[tenancyv1alpha1.WorkspacePreviousClusterAnnotationKey]); err == nil {
		key(previous)
	}
	return keys
}

// isReported reports whether another shard reports on the logical cluster of a workspace: it has handed it over to this one.
func (r *requestSource) isReported(workspace *tenancyv1alpha1.Workspace, cluster logicalcluster.Name) bool {
	_, err := r.reports.Get(logicalcluster.With(context.Background(), cluster), "", placement.ReportName(logicalcluster.Of(workspace), workspace.Name))
	return err == nil
}

// mapReport maps a report for this shard to the request.
func (r *requestSource) mapReport(event watch.Event) []controller.Request {
	report, ok := event.Object.(*shardingv1alpha1.LogicalClusterReport)
	if !ok || report.Spec.Shard != r.cfg.ShardName {
		return nil
	}
	parent, workspace, ok := placement.ParseReportName(report.Name)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: parent, Name: placement.RequestName(workspace, logicalcluster.Of(report))}}
}

// desired returns the request. Deletion and confirmation are final, so they are decided with a consistent read of the
// workspace.
func (r *requestSource) desired(ctx context.Context, key controller.Request) (runtime.Object, error) {
	request, err := r.request(ctx, key, r.workspaces.Get)
	if err == nil && request != nil && (request.Spec.Delete || request.Spec.Confirmed != "") {
		request, err = r.request(ctx, key, r.workspaces.GetLatest)
	}
	if err != nil || request == nil {
		return nil, awaitsOthers(err)
	}
	return request, nil
}

// awaitsOthers marks the errors because of requests or reports that are not synced. Requests depend on reports of other shards, which depend on
// requests: two shards that start with an empty cache would wait for each other. The absence of either has no effects.
func awaitsOthers(err error) error {
	if storage.IsNotSynced(err) {
		return fmt.Errorf("%w: %w", publisher.ErrAwaitsOthers, err)
	}
	return err
}

// request computes the request. It reads whether this shard serves the parent before and after the workspace: a consistent read finds no workspace
// in a parent that arrives meanwhile, or of which the remainder is deleted meanwhile.
func (r *requestSource) request(ctx context.Context, key controller.Request, read func(context.Context, string, string) (*tenancyv1alpha1.Workspace, error)) (*shardingv1alpha1.LogicalClusterRequest, error) {
	name, cluster, ok := placement.ParseRequestName(key.Name)
	if !ok {
		return nil, nil
	}
	before, err := r.cfg.Registry.IsLocal(ctx, key.ClusterName)
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", key.ClusterName, err)
	}
	workspace, err := read(ctx, "", name)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading workspace %q: %w", name, err)
	}
	if err != nil {
		workspace = nil
	}
	after, err := r.cfg.Registry.IsLocal(ctx, key.ClusterName)
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", key.ClusterName, err)
	}
	shard := ""
	if workspace != nil {
		shard = workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	}
	report, err := publishedBy(logicalcluster.With(ctx, cluster), r.reports, shard, placement.ReportName(key.ClusterName, name))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the report on logical cluster %q: %w", cluster, err)
	}
	if err != nil {
		report = nil
	}
	requester := placement.Requester{
		ShardName: r.cfg.ShardName, Parent: key.ClusterName, Cluster: cluster, Workspace: workspace, Report: report, HasParent: before && after, Held: r.cfg.Held(),
	}
	if report != nil && report.Spec.MovedTo != "" && !requester.HasParent {
		if requester.ParentMoves, err = r.moves(ctx, key.ClusterName); err != nil {
			return nil, err
		}
	}
	requester.Template = func() (*corev1alpha1.LogicalCluster, error) { return r.template(ctx, key.ClusterName, workspace) }
	return requester.Request()
}

// moves reports whether a migration names a logical cluster that this shard does not serve: it moves to another shard then, and was not deleted. A shard
// without the feature hands over none.
func (r *requestSource) moves(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if _, err := r.cfg.Registry.Get(migrations); err != nil {
		return false, nil //nolint:nilerr // no such resource
	}
	all, err := r.migrations.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err == nil {
		err = r.migrations.CheckSynced()
	}
	if err != nil {
		return false, fmt.Errorf("listing the migrations of logical cluster %q: %w", cluster, err)
	}
	return slices.ContainsFunc(all, func(migration *migrationv1alpha1.LogicalClusterMigration) bool {
		return migration.Spec.LogicalCluster == cluster.String() && migration.Spec.DestinationShard != r.cfg.ShardName
	}), nil
}

// template returns the desired LogicalCluster of a workspace. While its type cannot be resolved, the request is not
// changed; the condition of the workspace has the reason.
func (r *requestSource) template(ctx context.Context, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := r.cfg.Template(ctx, parent, workspace)
	if errors.Is(err, workspacetype.ErrUnresolvable) {
		return nil, fmt.Errorf("%w: %w", publisher.ErrUnchanged, err)
	}
	return cluster, err
}

// reportSource derives the reports of this shard from the requests of others and from its logical clusters.
type reportSource struct{ requests *RequestReader }

// mapLogicalCluster maps a logical cluster of a workspace on another shard to its report.
func (r *reportSource) mapLogicalCluster(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	if _, ok := placement.Remote(cluster); !ok {
		return nil
	}
	parent, err := logicalcluster.ParseName(cluster.Spec.Owner.Cluster)
	if err != nil {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(cluster), Name: placement.ReportName(parent, cluster.Spec.Owner.Name)}}
}

func (r *reportSource) desired(ctx context.Context, key controller.Request) (runtime.Object, error) {
	responder, err := r.requests.read(ctx, key)
	if responder == nil || err != nil {
		return nil, awaitsOthers(err)
	}
	if responder.Step() == placement.Delete {
		return nil, publisher.ErrUnchanged // the deletion, which starts now, triggers the next report
	}
	if report := responder.Report(); report != nil {
		return report, nil
	}
	return nil, nil
}
