package ladder

import (
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/atoll-dev/atoll/controllers/apply"
)

// Watches are what wakes a reconciler.
type Watches struct {
	Name string            // of the controller, in metrics and logs
	Kind client.Object     // that it reconciles
	List client.ObjectList // of that kind
	// Owned are kinds that it makes: one that changes wakes its owner.
	Owned []client.Object
	// Named are kinds that a spec names, or that count for what is made. One that changes wakes all objects of its namespace.
	Named []client.Object
	// Mounted are kinds whose content pods mount or bundles are made of. As Named, and only their metadata is kept in memory.
	Mounted []client.Object
}

// OfServer are the kinds that every server is made of: its certificates, pods and Service.
func OfServer() []client.Object {
	return []client.Object{&certmanagerv1.Certificate{}, &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}}
}

// OfStore are the kinds that come with a certificate authority or an etcd of a server's own.
func OfStore() []client.Object {
	return []client.Object{&certmanagerv1.Issuer{}, &appsv1.StatefulSet{}}
}

// Files are the kinds that pods mount.
func Files() []client.Object { return []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} }

// Controller is a reconciler that says what wakes it.
type Controller interface {
	reconcile.Reconciler
	Watches() Watches
}

// workers is how many objects of a kind are looked at at the same time. One that waits for an answer of an installation
// must not hold up those of others.
const workers = 4

// Add lets a manager run a controller. around may wrap its reconciler.
func Add(mgr ctrl.Manager, cluster apply.Cluster, c Controller, around func(name string, inner reconcile.Reconciler) reconcile.Reconciler) error {
	w := c.Watches()
	wake := cluster.EnqueueNamespace(w.List)
	builder := ctrl.NewControllerManagedBy(mgr).Named(w.Name).For(w.Kind)
	for _, kind := range w.Owned {
		builder = builder.Owns(kind)
	}
	for _, kind := range w.Named {
		builder = builder.Watches(kind, wake)
	}
	for _, kind := range w.Mounted {
		builder = builder.WatchesMetadata(kind, wake)
	}
	if err := builder.WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(around(w.Name, c)); err != nil {
		return fmt.Errorf("adding the controller %s: %w", w.Name, err)
	}
	return nil
}
