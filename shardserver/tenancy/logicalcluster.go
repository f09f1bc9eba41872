package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/sharding/replicatelabel"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
)

// adminBinding is the ClusterRoleBinding that makes the creator of a workspace its administrator.
const adminBinding = "workspace-admin"

// logicalClusterController updates the phase of LogicalClusters, runs the system initializers, and deletes the content
// of logical clusters that are being deleted.
type logicalClusterController struct {
	cfg        Config
	bindings   *storage.Reader[*rbac.ClusterRoleBinding]
	shards     endpoints.ShardLister
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	requests   *remote.RequestReader
	namespaces *storage.Reader[*core.Namespace]
	// apiBindings are read for deletions.
	apiBindings *storage.Reader[*apisv1alpha2.APIBinding]
	retries     retryLimiter
}

func newLogicalClusterController(cfg Config) controller.Controller {
	c := &logicalClusterController{
		cfg:         cfg,
		bindings:    storage.NewReader[*rbac.ClusterRoleBinding](cfg.Registry, clusterRoleBindings),
		shards:      endpoints.NewShardLister(cfg.Registry),
		clusters:    storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
		requests:    remote.NewRequestReader(cfg.remote()),
		namespaces:  storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		apiBindings: storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, apiBindings),
		retries:     newRetryLimiter(),
	}
	var shardChanges endpoints.ShardChanges
	typeIndex := defaultbindings.NewTypeIndex(cfg.Registry, cfg.Types)
	return controller.Controller{
		Name: "logicalcluster",
		Sources: []controller.Source{
			{Resource: logicalClusters, MapFunc: typeIndex.MapLogicalCluster},
			{Resource: workspaceTypes, MapFunc: typeIndex.MapWorkspaceType, Global: true},
			{Resource: apiExports, MapFunc: typeIndex.MapExport, Global: true},
			{Resource: apiBindings, MapFunc: func(event watch.Event) []controller.Request {
				return append(typeIndex.MapBinding(event), mapDeletionToCluster(event)...)
			}},
			{Resource: clusterRoleBindings, MapFunc: mapAdminBinding},
			// Deletions mostly wait for these: they continue when one of them is removed.
			{Resource: namespaces, MapFunc: mapDeletionToCluster},
			{Resource: workspaces, MapFunc: mapDeletionToCluster},
			{Resource: shards, Global: true, MapFunc: mapToAll(c.clusters, func(event watch.Event) bool {
				shard, ok := event.Object.(*corev1alpha1.Shard)
				return ok && shard.Name == cfg.ShardName && shardChanges.Changed(event)
			})},
			{Resource: requests, Global: true, MapFunc: c.requests.MapToCluster},
		},
		MaxConcurrentReconciles: workers,
		Reconcile:               c.reconcile,
	}
}

func mapAdminBinding(event watch.Event) []controller.Request {
	if binding, ok := event.Object.(*rbac.ClusterRoleBinding); !ok || binding.Name != adminBinding {
		return nil
	}
	return mapDeletionToCluster(event)
}

// clusterScope is the state of one reconcile of a LogicalCluster.
type clusterScope struct {
	name logicalcluster.Name
	// stored is the object as last read or written, cluster the desired one.
	stored, cluster *corev1alpha1.LogicalCluster
	// observed is the resource version at the start of the reconcile.
	observed string
	// shard is the Shard object of this shard, or nil while it is not synced.
	shard *corev1alpha1.Shard
	// deferWrite delays the status write because the status will change soon.
	deferWrite bool
	// responder is the state of the request of the workspace's shard, if that is another one; else nil.
	responder *placement.Responder
}

// reconcile observes, starts initialization, initializes, sets the phase, maintains and writes.
func (c *logicalClusterController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	scope, err := c.observe(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if isMoving(scope.stored) {
		return controller.Result{}, nil
	}
	if scope.stored.DeletionTimestamp != nil {
		return c.delete(ctx, scope)
	}
	if err := c.startInitialization(ctx, scope); err != nil {
		return controller.Result{}, err
	}
	result, err := c.initialize(ctx, scope)
	if err != nil {
		return controller.Result{}, err
	}
	if scope.deferWrite {
		c.waitForCache(ctx, scope)
		return result, nil
	}
	if scope.needsConfirmation() {
		return c.awaitConfirmation(ctx, scope, result)
	}
	setClusterPhase(scope.cluster)
	requeueAfter, err := c.maintainDefaults(ctx, scope)
	if err != nil {
		return result, err
	}
	result.RequeueAfter = max(result.RequeueAfter, requeueAfter)
	c.setMetadata(scope)
	if err := c.write(ctx, scope); err != nil {
		return result, err
	}
	c.waitForCache(ctx, scope)
	return result, nil
}

// waitForCache waits until the watch cache has the written object. Otherwise the next reconcile, which this write has
// caused, would repeat the work.
// isMoving reports whether writes to a logical cluster are refused because it moves to another shard, or has moved.
func isMoving(cluster *corev1alpha1.LogicalCluster) bool {
	for _, key := range []string{corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey} {
		if cluster.Annotations[key] != "" {
			return true
		}
	}
	return false
}

func (c *logicalClusterController) waitForCache(ctx context.Context, scope *clusterScope) {
	if written := scope.cluster.ResourceVersion; written != scope.observed {
		_, _ = c.clusters.GetNotOlderThan(ctx, "", scope.cluster.Name, written) // a stale watch cache only repeats work
	}
}

func (c *logicalClusterController) observe(ctx context.Context, key controller.Request) (*clusterScope, error) {
	stored, err := c.clusters.Get(ctx, "", key.Name)
	if err != nil {
		return nil, err
	}
	all, err := c.shards.List(ctx)
	if err != nil && !apierrors.IsServiceUnavailable(err) { // not synced yet: the event of the Shard triggers another reconcile
		return nil, fmt.Errorf("listing shards: %w", err)
	}
	responder, err := c.requests.ResponderFor(ctx, stored)
	if err != nil {
		return nil, err
	}
	return &clusterScope{
		name: key.ClusterName, stored: stored, cluster: stored.DeepCopy(), observed: stored.ResourceVersion,
		shard: shardByName(all, c.cfg.ShardName), responder: responder,
	}, nil
}

// startInitialization starts initialization. The status strategy copies initializers and terminators from the spec, so
// this is a separate write.
func (c *logicalClusterController) startInitialization(ctx context.Context, scope *clusterScope) error {
	scope.setURL()
	if !notStarted(scope.cluster.Status.Phase) {
		return nil
	}
	scope.cluster.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
	markInitializing(scope.cluster, scope.cluster.Spec.Initializers)
	if err := c.cfg.Clients.Typed.Status().Update(ctx, scope.cluster); err != nil {
		return fmt.Errorf("starting initialization of logical cluster %q: %w", scope.name, err)
	}
	scope.stored = scope.cluster.DeepCopy()
	return nil
}

func (s *clusterScope) setURL() {
	if s.shard != nil {
		s.cluster.Status.URL = clusterURL(s.shard, s.name.Path())
	}
}

// ensureAdmin creates the binding of the creator to cluster-admin, also if it was deleted. Tenants may change an
// existing one.
func (c *logicalClusterController) ensureAdmin(ctx context.Context, scope *clusterScope) error {
	admin := adminUserName(scope.cluster.Spec.CreatedBy)
	if admin == "" {
		return nil
	}
	if _, err := c.bindings.Get(ctx, "", adminBinding); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: adminBinding, Annotations: map[string]string{corev1alpha1.ReplicateAnnotationKey: replicatelabel.AdminBindingValue}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: admin}},
	}
	if err := c.cfg.Clients.Typed.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the admin binding of %q in logical cluster %q: %w", admin, scope.name, err)
	}
	return nil
}

// setMetadata updates finalizers and annotations. Those that are derived from the status are set with each write of it
// (package apis/core).
func (c *logicalClusterController) setMetadata(scope *clusterScope) {
	cluster := scope.cluster
	if len(cluster.Status.Terminators) == 0 {
		controllerutil.RemoveFinalizer(cluster, corev1alpha1.LogicalClusterHasTerminatorsFinalizer)
	}
	setMapEntry(&cluster.Annotations, corev1alpha1.ShardAnnotationKey, c.cfg.ShardName)
}

// write stores what changed: metadata with one request, the status with another.
func (c *logicalClusterController) write(ctx context.Context, scope *clusterScope) error {
	status := scope.cluster.Status.DeepCopy()
	if !sameMetadata(scope.stored, scope.cluster) {
		if err := c.cfg.Clients.Typed.Update(ctx, scope.cluster); err != nil {
			return fmt.Errorf("updating logical cluster %q: %w", scope.name, err)
		}
		scope.stored = scope.cluster.DeepCopy()
	}
	if equality.Semantic.DeepEqual(scope.stored.Status, *status) {
		return nil
	}
	scope.cluster.Status = *status
	if err := c.cfg.Clients.Typed.Status().Update(ctx, scope.cluster); err != nil {
		return fmt.Errorf("updating the status of logical cluster %q: %w", scope.name, err)
	}
	return nil
}

func sameMetadata(a, b *corev1alpha1.LogicalCluster) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers)
}
