package frontproxy

import (
	"context"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SetupWithManager starts the controller: it wakes for everything it made, for RootShards of the namespace, and for the
// Secrets and ConfigMaps that a FrontProxy may refer to.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("frontproxy").
		For(&operatorv1alpha1.FrontProxy{}).
		Owns(&certmanagerv1.Certificate{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Watches(&operatorv1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

func (r *Reconciler) inNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	var fronts operatorv1alpha1.FrontProxyList
	if err := r.Cluster.List(ctx, &fronts, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list FrontProxies to wake them")
		return nil
	}
	var out []reconcile.Request
	for i := range fronts.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&fronts.Items[i])})
	}
	return out
}
