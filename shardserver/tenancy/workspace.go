package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
)

// workspaceController schedules workspaces, synchronizes their status with their LogicalClusters, and deletes these
// with them.
type workspaceController struct {
	cfg        Config
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	reports    *remote.ReportReader
	shards     endpoints.ShardLister
	scheduler  *scheduling.Scheduler
}

func newWorkspaceController(cfg Config) controller.Controller {
	c := &workspaceController{
		cfg:        cfg,
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](cfg.Registry, workspaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		reports:    remote.NewReportReader(cfg.Registry, cfg.ShardName),
		shards:     endpoints.NewShardLister(cfg.Registry),
		scheduler:  scheduling.New(cfg.ShardName, cfg.Heartbeats),
	}
	cfg.Placer.place = c.place
	return controller.Controller{
		Name: "workspace",
		Sources: []controller.Source{
			{Resource: workspaces, MapFunc: controller.RequestForObject},
			{Resource: logicalClusters, MapFunc: c.mapLogicalCluster},
			{Resource: reports, Global: true, MapFunc: c.reports.MapToWorkspace},
			{Resource: shards, Global: true, MapFunc: mapToAll(c.workspaces, new(endpoints.ShardChanges).Changed)},
			{Resource: shardReports, Global: true, MapFunc: c.mapShardReport},
		},
		MaxConcurrentReconciles: workers,
		Reconcile:               c.reconcile,
	}
}

// mapLogicalCluster maps a LogicalCluster to the Workspace that owns it and, as its path may have changed, to the
// workspaces it contains.
func (c *workspaceController) mapLogicalCluster(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	var keys []controller.Request
	if owner := cluster.Spec.Owner; owner != nil && owner.Resource == workspaces.Resource {
		if parent, err := logicalcluster.ParseName(owner.Cluster); err == nil {
			keys = append(keys, controller.Request{ClusterName: parent, Name: owner.Name})
		}
	}
	if event.Type == watch.Modified {
		keys = append(keys, controller.RequestsForObjects(c.workspaces, logicalcluster.Of(cluster), nil)...)
	}
	return keys
}

// workspaceScope is the state of one reconcile of a workspace.
type workspaceScope struct {
	parent logicalcluster.Name
	// stored is the workspace as last read or written, workspace the desired one.
	stored, workspace *tenancyv1alpha1.Workspace
	// observed is the resource version at the start of the reconcile.
	observed string
	// created is the LogicalCluster that this reconcile has created, or nil.
	created *corev1alpha1.LogicalCluster
	shards  []*corev1alpha1.Shard
	facts   workspaceFacts
}

// reconcile schedules a workspace and updates it. The placement is stored before the LogicalCluster is created, so that
// the next reconcile continues after a crash at any step.
func (c *workspaceController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.workspaces.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	all, err := c.shards.List(ctx)
	if err != nil {
		return controller.Result{}, fmt.Errorf("listing shards: %w", err)
	}
	scope := &workspaceScope{
		parent: key.ClusterName, stored: stored, workspace: stored.DeepCopy(), observed: stored.ResourceVersion,
		shards: all, facts: workspaceFacts{now: time.Now()},
	}
	if err := c.updateMovedShard(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	switch {
	case stored.DeletionTimestamp != nil:
		return c.delete(ctx, scope)
	case stored.Spec.Mount != nil && !c.cfg.Mounts:
		return controller.Result{}, nil // mounts have no logical cluster
	case stored.Spec.Mount != nil:
		return c.mount(ctx, scope)
	}
	if err := c.schedule(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	if err := c.observeCluster(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	requeueAfter := setStatus(scope.workspace, scope.facts)
	if wait := deferStatus(stored, scope.facts); wait > 0 { // paths do not resolve before the phase is updated, and the placement is stored already
		c.waitForCache(ctx, scope)
		return controller.Result{RequeueAfter: wait}, nil
	}
	if err := c.setMetadata(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	if scope.facts.refused != nil {
		requeueAfter = unschedulableRetryInterval
	}
	if err := c.write(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	c.waitForCache(ctx, scope)
	return controller.Result{RequeueAfter: requeueAfter}, nil
}

// waitForCache waits until the watch caches have the written objects, because the writes have enqueued the workspace:
// the next reconcile must not work on the previous state, nor create the LogicalCluster twice.
func (c *workspaceController) waitForCache(ctx context.Context, scope *workspaceScope) {
	if created := scope.created; created != nil {
		_, _ = c.clusters.GetNotOlderThan(logicalcluster.With(ctx, logicalcluster.Of(created)), "", created.Name, created.ResourceVersion)
	}
	if written := scope.workspace.ResourceVersion; written != scope.observed {
		_, _ = c.workspaces.GetNotOlderThan(ctx, "", scope.workspace.Name, written)
	}
}

// unschedulableRetryInterval is the requeue delay of a workspace that cannot be scheduled: a missing type may have been
// created.
const unschedulableRetryInterval = time.Minute

// observeCluster reads the LogicalCluster of a scheduled workspace.
func (c *workspaceController) observeCluster(ctx context.Context, scope *workspaceScope) error {
	if scope.facts.cluster != nil || scope.workspace.Spec.Cluster == "" {
		return nil
	}
	cluster, err := c.clusterOf(ctx, scope, scope.workspace.Spec.Cluster)
	if err != nil {
		return err
	}
	scope.facts.cluster = cluster
	if cluster == nil && c.isRemote(scope) {
		return c.observeRemote(ctx, scope)
	}
	return nil
}

// clusterOf returns the LogicalCluster of that name if it belongs to the workspace, else nil. A NotFound of the watch
// cache is verified with a consistent read.
func (c *workspaceController) clusterOf(ctx context.Context, scope *workspaceScope, name string) (*corev1alpha1.LogicalCluster, error) {
	parsed, err := logicalcluster.ParseName(name)
	if err != nil {
		return nil, fmt.Errorf("workspace %q: %w", scope.workspace.Name, err)
	}
	ctx = logicalcluster.With(ctx, parsed)
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) && !c.isRemote(scope) {
		cluster, err = c.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", name, err)
	}
	if !owns(scope, cluster) || movestate.Of(cluster.Annotations) == movestate.MovedAway {
		return nil, nil
	}
	return cluster, nil
}

// owns reports whether a LogicalCluster was created for the workspace, and not for another one of the same name.
func owns(scope *workspaceScope, cluster *corev1alpha1.LogicalCluster) bool {
	owner := cluster.Spec.Owner
	_, remote := placement.Remote(cluster)
	return owner != nil && !remote && owner.UID == scope.stored.UID && owner.Cluster == scope.parent.String() && owner.Name == scope.stored.Name
}

// isRemote reports whether the workspace is scheduled on another shard that exists.
func (c *workspaceController) isRemote(scope *workspaceScope) bool {
	chosen := chosenShard(scope.workspace, scope.shards)
	return chosen != c.cfg.ShardName && shardByName(scope.shards, chosen) != nil
}

// setMetadata updates labels, annotations and the URL of a scheduled workspace.
func (c *workspaceController) setMetadata(ctx context.Context, scope *workspaceScope) error {
	workspace := scope.workspace
	if workspace.Spec.Cluster == "" {
		return nil
	}
	if cluster := scope.facts.cluster; cluster != nil && cluster.Annotations[corev1alpha1.ShardAnnotationKey] != "" {
		setShard(workspace, cluster.Annotations[corev1alpha1.ShardAnnotationKey])
	}
	shard := shardByName(scope.shards, chosenShard(workspace, scope.shards))
	if shard == nil {
		return nil
	}
	setRegion(workspace, shard)
	path, err := pathOf(ctx, c.cfg.Types, scope.parent, workspace)
	if err != nil {
		return err
	}
	workspace.Spec.URL = clusterURL(shard, path)
	return nil
}

// write stores what changed, with one request.
func (c *workspaceController) write(ctx context.Context, scope *workspaceScope) error {
	if !sameExceptStatus(scope.stored, scope.workspace) {
		return c.updateWorkspace(ctx, scope)
	}
	if equality.Semantic.DeepEqual(scope.stored.Status, scope.workspace.Status) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Status().Update(ctx, scope.workspace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating the status of workspace %q: %w", scope.workspace.Name, err)
	}
	return nil
}

// updateWorkspace stores metadata and spec if they changed, and the status with them.
func (c *workspaceController) updateWorkspace(ctx context.Context, scope *workspaceScope) error {
	if sameExceptStatus(scope.stored, scope.workspace) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Update(ctx, scope.workspace); err != nil {
		return fmt.Errorf("updating workspace %q: %w", scope.workspace.Name, err)
	}
	scope.stored = scope.workspace.DeepCopy()
	return nil
}

func sameExceptStatus(a, b *tenancyv1alpha1.Workspace) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func setShard(workspace *tenancyv1alpha1.Workspace, name string) {
	setMapEntry(&workspace.Annotations, corev1alpha1.ShardAnnotationKey, name)
	setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspaceShardHashAnnotationKey, placementrules.ShardHash(name))
}

func setRegion(workspace *tenancyv1alpha1.Workspace, shard *corev1alpha1.Shard) {
	if region, ok := shard.Labels[tenancyv1alpha1.RegionLabelKey]; ok {
		setMapEntry(&workspace.Labels, tenancyv1alpha1.RegionLabelKey, region)
	} else {
		delete(workspace.Labels, tenancyv1alpha1.RegionLabelKey)
	}
}

func setMapEntry(in *map[string]string, key, value string) {
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
}
