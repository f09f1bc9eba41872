package virtualworkspace

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SetupWithManager starts the controller: it wakes for everything it made, for the shards and cache servers of the
// namespace, and for Secrets and ConfigMaps that a VirtualWorkspace may refer to.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	wake := r.Cluster.Wake(&operatorv1alpha1.VirtualWorkspaceList{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualworkspace").
		For(&operatorv1alpha1.VirtualWorkspace{}).
		Owns(&certmanagerv1.Certificate{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Watches(&operatorv1alpha1.RootShard{}, wake).
		Watches(&operatorv1alpha1.Shard{}, wake).
		Watches(&operatorv1alpha1.CacheServer{}, wake).
		WatchesMetadata(&corev1.Secret{}, wake).
		WatchesMetadata(&corev1.ConfigMap{}, wake).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}
