package kubeconfig

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SetupWithManager starts the controller: it wakes for its certificate, for the targets of the namespace, and for Secrets
// there, so that a renewed certificate is written out at once.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	wake := r.Cluster.Wake(&operatorv1alpha1.KubeconfigList{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("kubeconfig").
		For(&operatorv1alpha1.Kubeconfig{}).
		Owns(&certmanagerv1.Certificate{}).
		Watches(&operatorv1alpha1.RootShard{}, wake).
		Watches(&operatorv1alpha1.Shard{}, wake).
		Watches(&operatorv1alpha1.FrontProxy{}, wake).
		WatchesMetadata(&corev1.Secret{}, wake).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}
