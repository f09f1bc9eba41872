package lifecycle

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// namespaceDefaultsWorkers is the number of namespaces that get their default objects concurrently. Workers mostly wait for etcd.
const namespaceDefaultsWorkers = 16

// namespaceDefaultsController keeps the default objects of each active namespace. It is one controller for all of them, so that they are
// stored together.
type namespaceDefaultsController struct {
	namespaces *storage.Reader[*core.Namespace]
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	defaults   NamespaceDefaults
}

// NamespaceDefaults are the objects that each active namespace has.
type NamespaceDefaults []namespaceDefault

// NewNamespaceDefaults returns the objects that the controllers of this package maintain.
func NewNamespaceDefaults(cfg Config) NamespaceDefaults {
	return NamespaceDefaults{
		&defaultServiceAccount{cfg, storage.NewReader[*core.ServiceAccount](cfg.Registry, serviceAccounts)},
		&rootCA{cfg, storage.NewReader[*core.ConfigMap](cfg.Registry, configMaps)},
	}
}

// Missing returns what creates or restores those that are not as they should be in a namespace of the context's logical cluster. The
// error is about the others.
func (d NamespaceDefaults) Missing(ctx context.Context, namespace string) ([]func(context.Context) error, error) {
	return d.missing(ctx, namespace, "0")
}

func (d NamespaceDefaults) missing(ctx context.Context, namespace, resourceVersion string) ([]func(context.Context) error, error) {
	var writes []func(context.Context) error
	var failed error
	for _, object := range d {
		write, err := object.missing(ctx, namespace, resourceVersion)
		failed = errors.Join(failed, err)
		if write != nil {
			writes = append(writes, write)
		}
	}
	return writes, failed
}

// InitialNamespaces are the namespaces that a new logical cluster has. They are stored together with their default objects.
var InitialNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

// namespaceDefault is an object that each active namespace has.
type namespaceDefault interface {
	// missing returns what creates or restores the object in a namespace of the context's logical cluster; nil if it is as it should be. The
	// watch cache that it reads has observed the resource version.
	missing(ctx context.Context, namespace, resourceVersion string) (func(context.Context) error, error)
}

func newNamespaceDefaultsController(cfg Config) controller.Controller {
	c := &namespaceDefaultsController{
		namespaces: storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		defaults:   NewNamespaceDefaults(cfg),
	}
	return controller.Controller{
		Name: "namespace-defaults",
		Sources: []controller.Source{
			{Resource: namespaces, MapFunc: mapActiveNamespace},
			{Resource: serviceAccounts, MapFunc: mapToNamespace(defaultServiceAccountName)},
			{Resource: configMaps, MapFunc: mapToNamespace(rootcacertpublisher.RootCACertConfigMapName)},
		},
		MaxConcurrentReconciles: namespaceDefaultsWorkers,
		Reconcile:               c.reconcile,
	}
}

func mapActiveNamespace(event watch.Event) []controller.Request {
	namespace, ok := event.Object.(*core.Namespace)
	if !ok || event.Type == watch.Deleted || !isActive(namespace) {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(namespace), Name: namespace.Name}}
}

// mapToNamespace maps events of objects of that name to their namespace.
func mapToNamespace(name string) func(watch.Event) []controller.Request {
	return func(event watch.Event) []controller.Request {
		for _, key := range controller.RequestForObject(event) {
			if key.Name == name {
				return []controller.Request{{ClusterName: key.ClusterName, Name: key.Namespace}}
			}
		}
		return nil
	}
}

func (c *namespaceDefaultsController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	writes, failed := c.defaults.Missing(ctx, key.Name)
	if len(writes) == 0 {
		return controller.Result{}, failed
	}
	// Of a logical cluster that is being deleted, content goes before its namespace is Terminating.
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if err == nil && cluster.DeletionTimestamp != nil {
		return controller.Result{}, failed
	}
	read := c.namespaces.Get
	if apierrors.IsNotFound(err) {
		// The logical cluster is gone, with namespaces that the watch cache may still have; or it is new, arrives by a move, or has none.
		read = c.namespaces.GetLatest
	}
	namespace, err := read(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !isActive(namespace)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if slices.Contains(InitialNamespaces, namespace.Name) {
		// What is stored together reaches the watch caches in any order.
		if writes, failed = c.defaults.missing(ctx, namespace.Name, namespace.ResourceVersion); len(writes) == 0 {
			return controller.Result{}, failed
		}
	}
	return controller.Result{}, errors.Join(failed, errors.Join(storage.Together(ctx, writes...)...))
}
