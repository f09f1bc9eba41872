package lifecycle

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	defaults   []namespaceDefault
}

// namespaceDefault is an object that each active namespace has.
type namespaceDefault interface {
	// missing returns what creates or restores the object in a namespace of the context's logical cluster; nil if it is as it should be.
	missing(ctx context.Context, namespace string) (func(context.Context) error, error)
}

func newNamespaceDefaultsController(cfg Config) controller.Controller {
	c := &namespaceDefaultsController{
		namespaces: storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		defaults: []namespaceDefault{
			&defaultServiceAccount{cfg, storage.NewReader[*core.ServiceAccount](cfg.Registry, serviceAccounts)},
			&rootCA{cfg, storage.NewReader[*core.ConfigMap](cfg.Registry, configMaps)},
		},
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
	var writes []func(context.Context) error
	var failed error
	for _, object := range c.defaults {
		write, err := object.missing(ctx, key.Name)
		failed = errors.Join(failed, err)
		if write != nil {
			writes = append(writes, write)
		}
	}
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
	return controller.Result{}, errors.Join(failed, errors.Join(storage.Together(ctx, writes...)...))
}
