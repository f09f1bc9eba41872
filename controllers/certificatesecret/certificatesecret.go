// Package certificatesecret deletes the Secrets of certificates together with the objects for which they were issued. By default,
// cert-manager does not delete Secrets, and valid private keys remain.
package certificatesecret

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/reconcile"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=delete

const (
	name = "certificatesecret"
	// retryInterval is the time until a Secret without a Certificate is reconciled again, while its Kubeconfig exists: the Kubeconfig may
	// be deleted without an event of a Certificate or Secret.
	retryInterval = 10 * time.Second
)

// Reconciler makes Certificates of the operator the owners of their Secrets. The Secret of a Kubeconfig that was issued while its
// Certificate was deleted has no owner: the reconciler deletes it when the Kubeconfig does not exist any more.
type Reconciler struct{ Cluster apply.Cluster }

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, wrap reconcile.Middleware) error {
	err := ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(predicate.NewPredicateFuncs(isIssued))).
		// A cache may have a Secret before its Certificate, because caches of different kinds are not synchronized.
		Watches(&certmanagerv1.Certificate{}, handler.EnqueueRequestsFromMapFunc(secretOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(wrap(name, r))
	if err != nil {
		return fmt.Errorf("adding the controller %s: %w", name, err)
	}
	return nil
}

// isIssued reports whether cert-manager issued a Secret for a Certificate of the operator. All such Secrets have the operator's labels.
func isIssued(secret client.Object) bool {
	if secret.GetAnnotations()[certmanagerv1.CertificateNameKey] == "" {
		return false
	}
	for label := range secret.GetLabels() {
		if strings.HasPrefix(label, operatorv1alpha1.GroupName+"/") {
			return true
		}
	}
	return false
}

// secretOf maps a Certificate of the operator to its Secret.
func secretOf(_ context.Context, obj client.Object) []ctrl.Request {
	certificate, ok := obj.(*certmanagerv1.Certificate)
	if !ok || !isOwned(certificate) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: certificate.Namespace, Name: certificate.Spec.SecretName}}}
}

// isOwned reports whether a Certificate belongs to an object of the operator.
func isOwned(certificate *certmanagerv1.Certificate) bool {
	owner := metav1.GetControllerOf(certificate)
	return owner != nil && owner.APIVersion == operatorv1alpha1.SchemeGroupVersion.String()
}

// Reconcile implements reconcile.Reconciler for the name of a Secret.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := r.Cluster.Get(ctx, req.NamespacedName, secret); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, errors.Join(reconcile.ErrRead, err)
	} else if err != nil || !isIssued(secret) {
		return ctrl.Result{}, nil
	}
	certificate, err := apply.Get[certmanagerv1.Certificate](ctx, r.Cluster, secret.Namespace, secret.Annotations[certmanagerv1.CertificateNameKey])
	if err != nil {
		return ctrl.Result{}, err
	}
	if certificate != nil {
		if !isOwned(certificate) {
			return ctrl.Result{}, nil // belongs to another owner
		}
		return ctrl.Result{}, r.Cluster.SetCertificateSecretOwner(ctx, certificate)
	}
	// Other Secrets may contain a CA or a key that a user restores before the object that it belongs to.
	owner := secret.Labels[operatorv1alpha1.LabelKubeconfig]
	if owner == "" {
		return ctrl.Result{}, nil
	}
	kubeconfig, err := apply.Get[operatorv1alpha1.Kubeconfig](ctx, r.Cluster, secret.Namespace, owner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if kubeconfig != nil {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	unchanged := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
	return ctrl.Result{}, client.IgnoreNotFound(r.Cluster.Delete(ctx, secret, unchanged))
}
