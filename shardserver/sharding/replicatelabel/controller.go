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

// everything is the name in the key that stands for all objects of a logical cluster.
const everything = "*"

// Config is what the controller works with.
type Config struct {
	Registry *storage.Registry
	// Objects writes annotations, in the logical cluster of the context.
	Objects metadata.Interface
}

// marker brings the marks of a whole logical cluster up to date: they depend on each other.
type marker struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	roles    *storage.Reader[*rbac.ClusterRole]
	bindings *storage.Reader[*rbac.ClusterRoleBinding]
	exports  *storage.Reader[*apisv1alpha2.APIExport]
	types    *storage.Reader[*tenancyv1alpha1.WorkspaceType]
	// offers is nil where cached resources are not served.
	offers *storage.Reader[*cachev1alpha1.ClusterCachedResource]
}

// Controller returns the controller. Its key is a logical cluster. The roles of system:admin, which all bindings may
// refer to, are part of the server and do not change while it runs.
func Controller(cfg Config) controller.Controller {
	m := &marker{
		cfg:      cfg,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		roles:    storage.NewReader[*rbac.ClusterRole](cfg.Registry, rbac.Resource("clusterroles")),
		bindings: storage.NewReader[*rbac.ClusterRoleBinding](cfg.Registry, rbac.Resource("clusterrolebindings")),
		exports:  storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, apisv1alpha2.Resource("apiexports")),
		types:    storage.NewReader[*tenancyv1alpha1.WorkspaceType](cfg.Registry, tenancyv1alpha1.Resource("workspacetypes")),
	}
	followed := []schema.GroupResource{m.clusters.Resource(), m.roles.Resource(), m.bindings.Resource(), m.exports.Resource(), m.types.Resource()}
	if offers := cachev1alpha1.Resource("clustercachedresources"); isStored(cfg.Registry, offers) {
		m.offers = storage.NewReader[*cachev1alpha1.ClusterCachedResource](cfg.Registry, offers)
		followed = append(followed, offers)
	}
	c := controller.Controller{Name: "replication-marks", Workers: 4, Reconcile: m.reconcile}
	for _, resource := range followed {
		c.Inputs = append(c.Inputs, controller.Input{Resource: resource, Keys: clusterOf})
	}
	return c
}

func isStored(registry *storage.Registry, gr schema.GroupResource) bool {
	_, err := registry.Get(gr)
	return err == nil
}

// clusterOf maps an event to its logical cluster. What belongs to the shard itself stays there.
func clusterOf(event watch.Event) []controller.Key {
	keys := controller.ObjectKey(event)
	if len(keys) == 0 || keys[0].Cluster.IsSystem() {
		return nil
	}
	return []controller.Key{{Cluster: keys[0].Cluster, Name: everything}}
}

func (m *marker) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	scope, err := m.observe(ctx)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // it is not there yet, or gone
	}
	if err != nil || scope.cluster.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	var errs []error
	for _, mark := range scope.plan() {
		if err := m.write(ctx, mark); err != nil {
			errs = append(errs, fmt.Errorf("marking %s %q of %q for replication: %w", mark.resource, mark.name, key.Cluster, err))
		}
	}
	return controller.Result{}, errors.Join(errs...)
}

func (m *marker) observe(ctx context.Context) (*scope, error) {
	s := &scope{}
	var err error
	if s.cluster, err = m.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err != nil {
		return nil, err
	}
	if s.roles, err = m.roles.List(ctx, "", nil); err != nil {
		return nil, err
	}
	if s.bindings, err = m.bindings.List(ctx, "", nil); err != nil {
		return nil, err
	}
	if s.shared, err = m.shared(ctx, s); err != nil {
		return nil, err
	}
	if s.exports, err = anyOf(ctx, m.exports); err != nil {
		return nil, err
	}
	if s.types, err = anyOf(ctx, m.types); err != nil || m.offers == nil {
		return s, err
	}
	s.offers, err = anyOf(ctx, m.offers)
	return s, err
}

// shared returns the roles of system:admin that bindings refer to for want of one of their own.
func (m *marker) shared(ctx context.Context, s *scope) ([]*rbac.ClusterRole, error) {
	ctx = logicalcluster.With(ctx, logicalcluster.Admin)
	var found []*rbac.ClusterRole
	for _, binding := range s.bindings {
		if named(s.roles, binding.RoleRef.Name) != nil || named(found, binding.RoleRef.Name) != nil {
			continue
		}
		role, err := m.roles.Get(ctx, "", binding.RoleRef.Name)
		switch {
		case err == nil:
			found = append(found, role)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return found, nil
}

func anyOf[T runtime.Object](ctx context.Context, reader *storage.Reader[T]) (bool, error) {
	all, err := reader.List(ctx, "", nil)
	return len(all) > 0, err
}

// versions are those in which the marked resources are written.
var versions = map[string]schema.GroupVersion{
	"logicalclusters":     corev1alpha1.SchemeGroupVersion,
	"clusterroles":        rbacv1.SchemeGroupVersion,
	"clusterrolebindings": rbacv1.SchemeGroupVersion,
}

func (m *marker) write(ctx context.Context, of mark) error {
	var value any // null removes it
	if of.value != "" {
		value = of.value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1alpha1.ReplicateAnnotationKey: value}}})
	if err != nil {
		return err
	}
	_, err = m.cfg.Objects.Resource(versions[of.resource].WithResource(of.resource)).Patch(ctx, of.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
