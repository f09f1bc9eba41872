// Package services contains the controller of Services of core.kdp.k8c.io in the workspace of an organisation. For each Service it
// creates an APIExport of the same name, and a Secret with a kubeconfig for the agent that fills the export.
//
// All created objects have an owner reference to the Service: the garbage collector of the workspace deletes them, even while no
// controller runs. The deletion of an APIExport that has consumers has the same consequences as for any other APIExport.
package services

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
)

// reconciler creates and updates the objects that Services need.
type reconciler struct {
	client.Client
	// live reads without the cache, which contains only objects with the label.
	live   client.Reader
	server Server
}

// add registers the controller with a manager whose cache uses cacheOptions.
func add(mgr ctrl.Manager, server Server) error {
	r := &reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), server: server}
	skipNames := true // several may run in one process, for example in tests
	return ctrl.NewControllerManagedBy(mgr).
		For(&kdpcorev1alpha1.Service{}).
		Watches(&kdpcorev1alpha1.Service{}, handler.EnqueueRequestsFromMapFunc(r.sameGroup)).
		Owns(&apisv1alpha1.APIExport{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&corev1.Secret{}).
		Owns(&rbacv1.ClusterRole{}).
		Owns(&rbacv1.ClusterRoleBinding{}).
		WithOptions(controller.Options{SkipNameValidation: &skipNames}).
		Complete(r)
}

// sameGroup returns requests for the other Services with the API group of the changed one, because only one of them can have the group.
func (r *reconciler) sameGroup(ctx context.Context, changed client.Object) []reconcile.Request {
	var all kdpcorev1alpha1.ServiceList
	if err := r.List(ctx, &all); err != nil {
		return nil // happens only before the cache has synced, which enqueues all
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Spec.APIGroup == changed.(*kdpcorev1alpha1.Service).Spec.APIGroup && all.Items[i].Name != changed.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// Reconcile creates and updates the objects that one Service needs, and reports its condition.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service := &kdpcorev1alpha1.Service{}
	if err := r.Get(ctx, request.NamespacedName, service); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if service.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var all kdpcorev1alpha1.ServiceList
	if err := r.List(ctx, &all); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing Services: %w", err)
	}
	if first := holder(service.Spec.APIGroup, all.Items); first != nil && first.UID != service.UID {
		return reconcile.Result{}, r.report(ctx, service, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: kdpcorev1alpha1.ReasonAPIGroupTaken,
			Message: fmt.Sprintf("Service %q has the API group %s; delete one of the two, or create this one with another group", first.Name, service.Spec.APIGroup),
		})
	}
	ready, err := r.offer(ctx, service)
	return reconcile.Result{}, errors.Join(err, r.report(ctx, service, ready))
}

// offer creates missing objects and deletes those that are not used any more. It returns a failed request both as condition and as error.
func (r *reconciler) offer(ctx context.Context, service *kdpcorev1alpha1.Service) (metav1.Condition, error) {
	var token []byte
	for _, object := range desired(service) {
		if err := r.apply(ctx, service, object); err != nil {
			return failed(err)
		}
		if secret, ok := object.Object.(*corev1.Secret); ok {
			token = secret.Data[corev1.ServiceAccountTokenKey]
		}
	}
	if len(token) == 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: kdpcorev1alpha1.ReasonWaitingForToken,
			Message: "the server has not issued the token of the agent yet"}, nil // its update enqueues the Service
	}
	secret, err := kubeconfigSecret(service, r.server, token)
	if err != nil {
		return failed(err)
	}
	if err := errors.Join(r.apply(ctx, service, secret), r.prune(ctx, service)); err != nil {
		return failed(err)
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: kdpcorev1alpha1.ReasonOffered,
		Message: fmt.Sprintf("the kubeconfig of the agent is in Secret %s/%s", secret.GetNamespace(), secret.GetName())}, nil
}

// takenError means that an object of this name exists and belongs to another owner.
type takenError struct{ kind, name string }

func (e *takenError) Error() string {
	return fmt.Sprintf("%s %q exists and does not belong to this Service; rename one of the two, or delete it", e.kind, e.name)
}

// failed returns the condition and the error, so that the Service is requeued. The controller does not watch an object that has taken a
// name, so it also retries takenErrors.
func failed(err error) (metav1.Condition, error) {
	ready := metav1.Condition{Status: metav1.ConditionFalse, Reason: kdpcorev1alpha1.ReasonFailed, Message: err.Error()}
	var taken *takenError
	if errors.As(err, &taken) {
		ready.Reason = kdpcorev1alpha1.ReasonNameTaken
	}
	return ready, err
}

// report writes the condition if it differs.
func (r *reconciler) report(ctx context.Context, service *kdpcorev1alpha1.Service, ready metav1.Condition) error {
	before := service.DeepCopy()
	ready.Type, ready.ObservedGeneration = kdpcorev1alpha1.ConditionReady, service.Generation
	meta.SetStatusCondition(&service.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before.Status, service.Status) {
		return nil
	}
	err := r.Status().Patch(ctx, service, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil // deleted in the meantime
	}
	return err
}
