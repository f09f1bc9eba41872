package replicatelabel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// allObjects is the request name that stands for all objects of a logical cluster.
const allObjects = "*"

// Config configures the controller.
type Config struct {
	Registry *storage.Registry
	// Objects patches annotations in the logical cluster of the context.
	Objects metadata.Interface
}

// replicationController reconciles the annotations of a logical cluster as a whole, as they depend on each other.
type replicationController struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	roles    *storage.Reader[*rbac.ClusterRole]
	bindings *storage.Reader[*rbac.ClusterRoleBinding]
	exports  *storage.Reader[*apisv1alpha2.APIExport]
	types    *storage.Reader[*tenancyv1alpha1.WorkspaceType]
	// cachedResources is nil where cached resources are not served.
	cachedResources *storage.Reader[*cachev1alpha1.ClusterCachedResource]
}

// Controller returns the controller. It reconciles logical clusters. The roles of system:admin, which all bindings may
// reference, are built in and do not change while the server runs.
func Controller(cfg Config) controller.Controller {
	c := &replicationController{
		cfg:      cfg,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		roles:    storage.NewReader[*rbac.ClusterRole](cfg.Registry, rbac.Resource("clusterroles")),
		bindings: storage.NewReader[*rbac.ClusterRoleBinding](cfg.Registry, rbac.Resource("clusterrolebindings")),
		exports:  storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, apisv1alpha2.Resource("apiexports")),
		types:    storage.NewReader[*tenancyv1alpha1.WorkspaceType](cfg.Registry, tenancyv1alpha1.Resource("workspacetypes")),
	}
	watched := []schema.GroupResource{c.clusters.Resource(), c.roles.Resource(), c.bindings.Resource(), c.exports.Resource(), c.types.Resource()}
	if cachedResources := cachev1alpha1.Resource("clustercachedresources"); isStored(cfg.Registry, cachedResources) {
		c.cachedResources = storage.NewReader[*cachev1alpha1.ClusterCachedResource](cfg.Registry, cachedResources)
		watched = append(watched, cachedResources)
	}
	out := controller.Controller{Name: "replication-changes", MaxConcurrentReconciles: 4, Reconcile: c.reconcile}
	for _, resource := range watched {
		out.Sources = append(out.Sources, controller.Source{Resource: resource, MapFunc: clusterKey})
	}
	return out
}

func isStored(registry *storage.Registry, gr schema.GroupResource) bool {
	_, err := registry.Get(gr)
	return err == nil
}

// clusterKey maps an event to its logical cluster. Objects of system logical clusters are not replicated.
func clusterKey(event watch.Event) []controller.Request {
	keys := controller.RequestForObject(event)
	if len(keys) == 0 || keys[0].ClusterName.IsSystem() {
		return nil
	}
	return []controller.Request{{ClusterName: keys[0].ClusterName, Name: allObjects}}
}

func (c *replicationController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	state, err := c.observe(ctx)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // it does not exist yet, or no longer
	}
	if err != nil || state.cluster.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	var errs []error
	for _, change := range state.changes() {
		if err := c.write(ctx, change); err != nil {
			errs = append(errs, fmt.Errorf("setting the replicate annotation of %s %q in %q: %w", change.resource, change.name, key.ClusterName, err))
		}
	}
	return controller.Result{}, errors.Join(errs...)
}

func (c *replicationController) observe(ctx context.Context) (*clusterState, error) {
	s := &clusterState{}
	var err error
	if s.cluster, err = c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err != nil {
		return nil, err
	}
	if s.roles, err = c.roles.List(ctx, "", nil); err != nil {
		return nil, err
	}
	if s.bindings, err = c.bindings.List(ctx, "", nil); err != nil {
		return nil, err
	}
	if s.adminRoles, err = c.adminRoles(ctx, s); err != nil {
		return nil, err
	}
	if s.exports, err = hasAny(ctx, c.exports); err != nil {
		return nil, err
	}
	if s.types, err = hasAny(ctx, c.types); err != nil || c.cachedResources == nil {
		return s, err
	}
	s.cachedResources, err = hasAny(ctx, c.cachedResources)
	return s, err
}

// adminRoles returns the roles of system:admin that bindings reference and that the logical cluster does not have
// itself.
func (c *replicationController) adminRoles(ctx context.Context, s *clusterState) ([]*rbac.ClusterRole, error) {
	ctx = logicalcluster.With(ctx, logicalcluster.Admin)
	var found []*rbac.ClusterRole
	for _, binding := range s.bindings {
		if findRole(s.roles, binding.RoleRef.Name) != nil || findRole(found, binding.RoleRef.Name) != nil {
			continue
		}
		role, err := c.roles.Get(ctx, "", binding.RoleRef.Name)
		switch {
		case err == nil:
			found = append(found, role)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return found, nil
}

func hasAny[T runtime.Object](ctx context.Context, reader *storage.Reader[T]) (bool, error) {
	all, err := reader.List(ctx, "", nil)
	return len(all) > 0, err
}

// versions are the API versions of the annotated resources.
var versions = map[string]schema.GroupVersion{
	"logicalclusters":     corev1alpha1.SchemeGroupVersion,
	"clusterroles":        rbacv1.SchemeGroupVersion,
	"clusterrolebindings": rbacv1.SchemeGroupVersion,
}

func (c *replicationController) write(ctx context.Context, change labelChange) error {
	var value any // null removes it
	if change.value != "" {
		value = change.value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1alpha1.ReplicateAnnotationKey: value}}})
	if err != nil {
		return err
	}
	_, err = c.cfg.Objects.Resource(versions[change.resource].WithResource(change.resource)).Patch(ctx, change.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
