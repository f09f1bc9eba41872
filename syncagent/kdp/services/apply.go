package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
)

// apply creates an object or updates the fields that differ. Afterwards the object has the content of the server.
func (r *reconciler) apply(ctx context.Context, service *kdpcorev1alpha1.Service, desired object) error {
	err := r.Get(ctx, client.ObjectKeyFromObject(desired.Object), desired.Object)
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, service, desired)
	case err != nil:
		return fmt.Errorf("reading %s: %w", r.describe(desired.Object), err)
	case !metav1.IsControlledBy(desired.Object, service):
		return &takenError{kind: r.kind(desired.Object), name: desired.GetName()}
	}
	before := desired.DeepCopyObject().(client.Object)
	if err := r.fill(service, desired); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, desired.Object) {
		return nil
	}
	if err := r.Patch(ctx, desired.Object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("updating %s: %w", r.describe(desired.Object), err)
	}
	return nil
}

// create creates an object that is not in the cache: it does not exist, does not have the label, or has just been created.
func (r *reconciler) create(ctx context.Context, service *kdpcorev1alpha1.Service, desired object) error {
	if err := r.fill(service, desired); err != nil {
		return err
	}
	err := r.Create(ctx, desired.Object)
	if apierrors.IsAlreadyExists(err) {
		existing := desired.DeepCopyObject().(client.Object)
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(desired.Object), existing); err != nil {
			return fmt.Errorf("reading %s: %w", r.describe(desired.Object), err)
		}
		if !metav1.IsControlledBy(existing, service) {
			return &takenError{kind: r.kind(desired.Object), name: desired.GetName()}
		}
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", r.describe(desired.Object), err)
	}
	return nil
}

func (r *reconciler) fill(service *kdpcorev1alpha1.Service, desired object) error {
	desired.fill()
	labels := desired.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[kdpcorev1alpha1.ManagedLabelKey] = "true"
	desired.SetLabels(labels)
	return controllerutil.SetControllerReference(service, desired.Object, r.Scheme())
}

// prune deletes objects under names that spec.kubeconfig does not request any more.
func (r *reconciler) prune(ctx context.Context, service *kdpcorev1alpha1.Service) error {
	n := namesOf(service)
	var secrets corev1.SecretList
	var accounts corev1.ServiceAccountList
	if err := r.List(ctx, &secrets); err != nil {
		return fmt.Errorf("listing Secrets: %w", err)
	}
	if err := r.List(ctx, &accounts); err != nil {
		return fmt.Errorf("listing ServiceAccounts: %w", err)
	}
	var outdated []client.Object
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		if secret.Namespace != n.namespace || secret.Name != n.kubeconfig && secret.Name != n.token {
			outdated = append(outdated, secret)
		}
	}
	for i := range accounts.Items {
		if account := &accounts.Items[i]; account.Namespace != n.namespace || account.Name != n.account {
			outdated = append(outdated, account)
		}
	}
	for _, object := range outdated {
		if !metav1.IsControlledBy(object, service) {
			continue
		}
		if err := r.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s: %w", r.describe(object), err)
		}
	}
	return nil
}

func (r *reconciler) kind(object client.Object) string {
	gvk, err := r.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return gvk.Kind
}

func (r *reconciler) describe(object client.Object) string {
	return fmt.Sprintf("%s %s", r.kind(object), client.ObjectKeyFromObject(object))
}
