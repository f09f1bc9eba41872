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
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
)

// workspaceController places workspaces, keeps them in step with their LogicalClusters, and deletes these with them.
type workspaceController struct {
	cfg        Config
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	reports    *storage.Reader[*shardingv1alpha1.LogicalClusterReport]
	shards     shardReader
	placement  *scheduling.Shards
}

func newWorkspaceController(cfg Config) controller.Controller {
	c := &workspaceController{
		cfg:        cfg,
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](cfg.Registry, workspaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		reports:    storage.NewReader[*shardingv1alpha1.LogicalClusterReport](cfg.Registry, reports).Everywhere(),
		shards:     newShardReader(cfg.Registry),
		placement:  scheduling.New(cfg.ShardName, cfg.Beats),
	}
	return controller.Controller{
		Name: "workspace",
		Inputs: []controller.Input{
			{Resource: workspaces, Keys: controller.ObjectKey},
			{Resource: logicalClusters, Keys: c.ofCluster},
			{Resource: reports, Everywhere: true, Keys: c.ofReport},
			{Resource: shards, Everywhere: true, Keys: keysOfAll(c.workspaces, new(endpoints.ShardNews).IsNews)},
			{Resource: shardReports, Everywhere: true, Keys: c.ofShardReport},
		},
		Workers:   workers,
		Reconcile: c.reconcile,
	}
}

// ofCluster maps an event of a LogicalCluster to the Workspace that owns it and, as its path may have changed, to those
// it contains.
func (c *workspaceController) ofCluster(event watch.Event) []controller.Key {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return nil
	}
	var keys []controller.Key
	if owner := cluster.Spec.Owner; owner != nil && owner.Resource == workspaces.Resource {
		if parent, err := logicalcluster.ParseName(owner.Cluster); err == nil {
			keys = append(keys, controller.Key{Cluster: parent, Name: owner.Name})
		}
	}
	if event.Type == watch.Modified {
		keys = append(keys, keysIn(c.workspaces, logicalcluster.Of(cluster))...)
	}
	return keys
}

// workspaceScope is what is known of one workspace while it is worked on.
type workspaceScope struct {
	parent logicalcluster.Name
	// stored is the workspace as it is stored, to our knowledge; workspace is what it shall be.
	stored, workspace *tenancyv1alpha1.Workspace
	// observed is the resource version that the pass began with.
	observed string
	// made is the LogicalCluster that this pass has made, or nil.
	made   *corev1alpha1.LogicalCluster
	shards []*corev1alpha1.Shard
	facts  workspaceFacts
}

// Reconcile brings one workspace to where it leads. Placement is written down before anything is made of it, so that a
// crash at any step is continued, not repeated, by the next call.
func (c *workspaceController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	stored, err := c.workspaces.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	all, err := c.shards.list(ctx)
	if err != nil {
		return controller.Result{}, fmt.Errorf("listing shards: %w", err)
	}
	scope := &workspaceScope{
		parent: key.Cluster, stored: stored, workspace: stored.DeepCopy(), observed: stored.ResourceVersion,
		shards: all, facts: workspaceFacts{now: time.Now()},
	}
	switch {
	case stored.DeletionTimestamp != nil:
		return c.delete(ctx, scope)
	case stored.Spec.Mount != nil && !c.cfg.Mounts:
		return controller.Result{}, nil // what is mounted has no logical cluster
	case stored.Spec.Mount != nil:
		return c.mount(ctx, scope)
	}
	if err := c.schedule(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	if err := c.observeCluster(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	again := setStatus(scope.workspace, scope.facts)
	if wait := holdStatus(stored, scope.facts); wait > 0 {
		if !c.isElsewhere(scope) { // no path leads there before the status says more, and where it leads is reserved
			c.catchUp(ctx, scope)
			return controller.Result{RequeueAfter: wait}, nil
		}
		scope.workspace.Status, again = *stored.Status.DeepCopy(), wait
	}
	if err := c.setMetadata(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	if scope.facts.refused != nil {
		again = refusedAgain
	}
	if err := c.write(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	c.catchUp(ctx, scope)
	return controller.Result{RequeueAfter: again}, nil
}

// catchUp waits for the watch caches to see what was written, which has already queued the next look: that shall not find
// what was there before, nor make a LogicalCluster again.
func (c *workspaceController) catchUp(ctx context.Context, scope *workspaceScope) {
	if made := scope.made; made != nil {
		_, _ = c.clusters.GetNotOlderThan(logicalcluster.With(ctx, logicalcluster.Of(made)), "", made.Name, made.ResourceVersion)
	}
	if written := scope.workspace.ResourceVersion; written != scope.observed {
		_, _ = c.workspaces.GetNotOlderThan(ctx, "", scope.workspace.Name, written)
	}
}

// refusedAgain is when placement is tried again although nothing that was watched has changed: a missing type may have
// appeared.
const refusedAgain = time.Minute

// observeCluster finds the LogicalCluster of a placed workspace.
func (c *workspaceController) observeCluster(ctx context.Context, scope *workspaceScope) error {
	if scope.facts.cluster != nil || scope.workspace.Spec.Cluster == "" {
		return nil
	}
	cluster, err := c.clusterOf(ctx, scope, scope.workspace.Spec.Cluster)
	if err != nil {
		return err
	}
	scope.facts.cluster = cluster
	if cluster == nil && c.isElsewhere(scope) {
		return c.observeElsewhere(ctx, scope)
	}
	return nil
}

// clusterOf returns the LogicalCluster of that name if it belongs to the workspace, else nil. Absence is only believed
// after asking storage itself.
func (c *workspaceController) clusterOf(ctx context.Context, scope *workspaceScope, name string) (*corev1alpha1.LogicalCluster, error) {
	parsed, err := logicalcluster.ParseName(name)
	if err != nil {
		return nil, fmt.Errorf("workspace %q: %w", scope.workspace.Name, err)
	}
	ctx = logicalcluster.With(ctx, parsed)
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) && !c.isElsewhere(scope) {
		cluster, err = c.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", name, err)
	}
	if !owns(scope, cluster) {
		return nil, nil
	}
	return cluster, nil
}

// owns tells whether a LogicalCluster was made for the workspace, rather than for another that has its name.
func owns(scope *workspaceScope, cluster *corev1alpha1.LogicalCluster) bool {
	owner := cluster.Spec.Owner
	_, remotely := placement.Remote(cluster)
	return owner != nil && !remotely && owner.UID == scope.stored.UID && owner.Cluster == scope.parent.String() && owner.Name == scope.stored.Name
}

// isElsewhere tells whether the workspace was placed on another shard that exists.
func (c *workspaceController) isElsewhere(scope *workspaceScope) bool {
	chosen := chosenShard(scope.workspace, scope.shards)
	return chosen != c.cfg.ShardName && named(scope.shards, chosen) != nil
}

// setMetadata brings labels, annotations and the URL of a placed workspace up to date.
func (c *workspaceController) setMetadata(ctx context.Context, scope *workspaceScope) error {
	workspace := scope.workspace
	if workspace.Spec.Cluster == "" {
		return nil
	}
	if cluster := scope.facts.cluster; cluster != nil && cluster.Annotations[corev1alpha1.ShardAnnotationKey] != "" {
		setShard(workspace, cluster.Annotations[corev1alpha1.ShardAnnotationKey])
	}
	shard := named(scope.shards, chosenShard(workspace, scope.shards))
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
	if !sameMain(scope.stored, scope.workspace) {
		return c.writeMain(ctx, scope)
	}
	if equality.Semantic.DeepEqual(scope.stored.Status, scope.workspace.Status) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Status().Update(ctx, scope.workspace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating the status of workspace %q: %w", scope.workspace.Name, err)
	}
	return nil
}

// writeMain stores metadata and spec if they changed, and the status with them.
func (c *workspaceController) writeMain(ctx context.Context, scope *workspaceScope) error {
	if sameMain(scope.stored, scope.workspace) {
		return nil
	}
	if err := c.cfg.Clients.Typed.Update(ctx, scope.workspace); err != nil {
		return fmt.Errorf("updating workspace %q: %w", scope.workspace.Name, err)
	}
	scope.stored = scope.workspace.DeepCopy()
	return nil
}

func sameMain(a, b *tenancyv1alpha1.Workspace) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func setShard(workspace *tenancyv1alpha1.Workspace, name string) {
	setMapEntry(&workspace.Annotations, corev1alpha1.ShardAnnotationKey, name)
	setMapEntry(&workspace.Annotations, tenancyv1alpha1.WorkspaceShardHashAnnotationKey, shardHash(name))
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
