package reconcile

import (
	"context"
	"fmt"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Watches are the events that enqueue objects of a kind.
type Watches[T Object] struct {
	Name string            // of the controller, in metrics and logs
	For  T                 // the kind, as an empty object
	List client.ObjectList // of the kind
	// Owns are the kinds of objects that the kind creates: an event enqueues their owner.
	Owns []client.Object
	// References are kinds that a spec names, or that its objects depend on: an event enqueues all objects of the kind
	// in its namespace.
	References []client.Object
	// Files are as References, for kinds that pods mount and bundles are merged from. Only their metadata is cached.
	Files []client.Object
}

// ServerKinds are the kinds of objects that every server has: certificates, pods and a Service.
func ServerKinds() []client.Object {
	return []client.Object{&certmanagerv1.Certificate{}, &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}}
}

// StoreKinds are the kinds that a certificate authority or a managed etcd adds.
func StoreKinds() []client.Object {
	return []client.Object{&certmanagerv1.Issuer{}, &appsv1.StatefulSet{}}
}

// FileKinds are the kinds that pods mount.
func FileKinds() []client.Object { return []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} }

// maxConcurrentReconciles applies to each kind: an object that waits for a response of its installation must not delay others.
const maxConcurrentReconciles = 4

// Middleware wraps the reconciler of a controller.
type Middleware func(controller string, inner ctrlreconcile.Reconciler) ctrlreconcile.Reconciler

// SetupWithManager adds the controller of the kind to a manager.
func (r *Reconciler[T]) SetupWithManager(mgr ctrl.Manager, wrap Middleware) error {
	w := r.Watches
	enqueue := r.enqueueNamespace()
	builder := ctrl.NewControllerManagedBy(mgr).Named(w.Name).For(w.For)
	for _, kind := range w.Owns {
		builder = builder.Owns(kind)
	}
	for _, kind := range w.References {
		builder = builder.Watches(kind, enqueue)
	}
	for _, kind := range w.Files {
		builder = builder.WatchesMetadata(kind, enqueue)
	}
	options := controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}
	if err := builder.WithOptions(options).Complete(wrap(w.Name, r)); err != nil {
		return fmt.Errorf("adding the controller %s: %w", w.Name, err)
	}
	return nil
}

// enqueueNamespace enqueues all objects of the kind in the namespace of an event. A namespace contains few of them, and most of its
// Secrets belong to them, so references need no index.
func (r *Reconciler[T]) enqueueNamespace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []ctrl.Request {
		list := r.Watches.List.DeepCopyObject().(client.ObjectList)
		var out []ctrl.Request
		err := r.Cluster.List(ctx, list, client.InNamespace(changed.GetNamespace()))
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(item.(client.Object))})
				return nil
			})
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list objects to enqueue", "list", fmt.Sprintf("%T", list), "namespace", changed.GetNamespace())
			return nil
		}
		return out
	})
}
