package kubeconfig

import (
	"context"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SetupWithManager starts the controller: it wakes for its certificate, for the targets of the namespace, and for Secrets
// there, so that a renewed certificate is written out at once.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("kubeconfig").
		For(&operatorv1alpha1.Kubeconfig{}).
		Owns(&certmanagerv1.Certificate{}).
		Watches(&operatorv1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		Watches(&operatorv1alpha1.FrontProxy{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

func (r *Reconciler) inNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	var kubeconfigs operatorv1alpha1.KubeconfigList
	if err := r.Cluster.List(ctx, &kubeconfigs, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list Kubeconfigs to wake them")
		return nil
	}
	var out []reconcile.Request
	for i := range kubeconfigs.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&kubeconfigs.Items[i])})
	}
	return out
}
