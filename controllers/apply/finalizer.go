package apply

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// SetFinalizer adds a finalizer to an object, or removes it, and preserves the status in memory. It returns no error if the object does
// not exist any more.
func (c Cluster) SetFinalizer(ctx context.Context, object client.Object, finalizer string, present bool) error {
	if present == controllerutil.ContainsFinalizer(object, finalizer) {
		return nil
	}
	base := object.DeepCopyObject().(client.Object)
	changed := object.DeepCopyObject().(client.Object)
	if present {
		controllerutil.AddFinalizer(changed, finalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, finalizer)
	}
	// Finalizers are a list: without the lock, the patch would remove one that another controller adds at the same time.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, changed, patch, client.FieldOwner(FieldManager)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("changing the finalizer of %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err))
	}
	object.SetFinalizers(changed.GetFinalizers())
	object.SetResourceVersion(changed.GetResourceVersion()) // for the patch of the status
	return nil
}
