package instance

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

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
