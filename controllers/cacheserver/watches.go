package cacheserver

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// SetupWithManager starts the controller: it wakes for everything it made, and for the Secrets and ConfigMaps of a
// namespace that its CacheServers may refer to.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	wake := r.Cluster.Wake(&operatorv1alpha1.CacheServerList{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("cacheserver").
		For(&operatorv1alpha1.CacheServer{}).
		Owns(&certmanagerv1.Certificate{}).
		Owns(&certmanagerv1.Issuer{}).
		Owns(&appsv1.Deployment{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		WatchesMetadata(&corev1.Secret{}, wake).
		WatchesMetadata(&corev1.ConfigMap{}, wake).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}
