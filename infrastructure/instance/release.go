package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// movedMessage is the status message while another backend takes over.
const movedMessage = "The instance is being set up again."

// release deletes the objects of an instance, because another backend takes over. The object of the tenant stays. The absence of the
// finalizer means that this backend has no objects for it.
func (r *reconciliation) release() (reconcile.Result, error) {
	if !r.hasFinalizer() {
		return reconcile.Result{}, nil
	}
	status, changed := newStatus(r.instance.Object, State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: movedMessage}, connectionOf(r.instance.Object), time.Now())
	if changed && r.report(status) {
		return reconcile.Result{}, nil // the event of this write requeues the instance
	}
	gone, err := r.runner.Handler.Delete(r.ctx, r.instance)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("releasing the instance: %w", err)
	}
	if !gone {
		return reconcile.Result{RequeueAfter: deletionInterval}, nil
	}
	return reconcile.Result{}, r.removeFinalizer()
}

// confirm checks that this backend should still provide an instance after adding the finalizer, and otherwise removes it. The cached
// Template may be older than the decision that another backend takes over, which is made when no instance has the finalizer.
func (r *reconciliation) confirm() error {
	current := &infrastructurev1alpha1.Template{}
	err := r.runner.provider.Get(r.ctx, client.ObjectKeyFromObject(r.instance.Template), current)
	if err == nil && r.runner.isServed(current) && current.Spec.Backend == r.runner.Backend && current.Status.Backend.ReplacedBy == "" {
		return nil
	}
	if written := r.kind.get(r.instance.Cluster.String(), r.instance.Object.GetName()); written != nil {
		r.instance.Object = written
	}
	if removeErr := r.removeFinalizer(); err == nil {
		err = removeErr
	}
	return err
}

func (r *reconciliation) hasFinalizer() bool {
	return slices.Contains(r.instance.Object.GetFinalizers(), Finalizer(r.runner.Group))
}

// removeFinalizer removes the finalizer from an instance whose objects are gone.
func (r *reconciliation) removeFinalizer() error {
	finalizer := Finalizer(r.runner.Group)
	if !r.hasFinalizer() {
		return nil
	}
	return r.setFinalizers(withoutFinalizer(r.instance.Object, finalizer))
}

// Teardown implements TeardownTemplate for backends that call Run. It calls the Handler to delete all remaining objects of instances of a
// Template, and returns an error until none is left. The platform calls TeardownTemplate when no workspace has a provided instance. What
// is left belongs to instances that disappeared without finalization, and no running kind remains through which the sweep could find it.
//
// Teardown deletes if the Template is deleted, or has the annotation that lets another backend take over. Otherwise it waits for the sweep,
// which checks with the servers of the workspaces first. It deletes nothing of abandoned instances.
func Teardown(ctx context.Context, h Handler, t *infrastructurev1alpha1.Template) error {
	group, isDeleted := t.Spec.InstanceCRD.Group, t.DeletionTimestamp != nil
	_, isAbandoned := t.Annotations[backend.AnnotationAbandon(group)]
	_, isMigrated := t.Annotations[backend.AnnotationMigrate(group)]
	if isDeleted && isAbandoned {
		return nil
	}
	found, err := h.Instances(ctx)
	if err != nil {
		return fmt.Errorf("listing what is left of instances: %w", err)
	}
	left, errs := 0, []error(nil)
	for _, i := range found {
		if i.Template != t.Name {
			continue
		}
		if !isDeleted && !isMigrated {
			left++
			continue
		}
		object := &unstructured.Unstructured{}
		object.SetName(i.Name)
		gone, err := h.Delete(ctx, Instance{Cluster: i.Cluster, Template: t, Object: object})
		if err != nil {
			errs = append(errs, fmt.Errorf("removing what is left of instance %s of %s: %w", i.Name, i.Cluster, err))
		} else if !gone {
			left++
		}
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return err
	case left == 0:
		return nil
	case isDeleted:
		return &backend.InstancesLeftError{Message: fmt.Sprintf("removing what is left of %d instances that vanished; annotate the Template with %s to leave it", left, backend.AnnotationAbandon(group))}
	case isMigrated:
		return &backend.InstancesLeftError{Message: fmt.Sprintf("removing what is left of %d instances that vanished", left)}
	}
	return &backend.InstancesLeftError{Message: fmt.Sprintf("waiting until a sweep has removed what is left of %d instances that vanished; annotate the Template with %s to have all of it removed now",
		left, backend.AnnotationMigrate(group))}
}
