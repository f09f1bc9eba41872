package instances

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// Teardown is for TeardownTemplate of backends that call Run. It has the Handler delete what there is of instances of a Template, and
// returns an error until nothing is left. The platform calls TeardownTemplate once no workspace has an instance that is provided, so what
// is left vanished without having been finalized, and no kind remains by which the sweep could find it.
//
// A Template that is deleted asks for that, and so does the annotation that lets another backend take over. Without this one, what is left is
// waited for: the sweep asks the servers of its workspaces first. Nothing is deleted of instances that are abandoned.
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
