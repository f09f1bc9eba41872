package rules

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// finalizerGuard ensures that every live object of a resource has a finalizer of the system, and that only the system
// removes it from an object that is being deleted.
type finalizerGuard struct {
	*admission.Handler
	resource  schema.GroupResource
	finalizer string
}

// NewFinalizerGuard returns the plug-in that guards a finalizer of a resource.
func NewFinalizerGuard(resource schema.GroupResource, finalizer string) admission.Interface {
	return &finalizerGuard{Handler: admission.NewHandler(admission.Create, admission.Update), resource: resource, finalizer: finalizer}
}

// Admit adds the finalizer to a live object, for every user.
func (g *finalizerGuard) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != g.resource {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	if deleting, err := isDeleting(a); deleting || err != nil {
		return err
	}
	if !slices.Contains(obj.GetFinalizers(), g.finalizer) {
		obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), g.finalizer))
	}
	return nil
}

// Validate refuses a live object without the finalizer, and its removal from an object in deletion by users other than
// masters.
func (g *finalizerGuard) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != g.resource {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	if slices.Contains(obj.GetFinalizers(), g.finalizer) {
		return nil
	}
	deleting, err := isDeleting(a)
	switch {
	case err != nil:
		return err
	case !deleting:
		return Forbid(a, "finalizer %s is missing", g.finalizer)
	case IsMaster(a.GetUserInfo()):
		return nil
	}
	old, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return err
	}
	if slices.Contains(old.GetFinalizers(), g.finalizer) {
		return Forbid(a, "removing the finalizer %s is forbidden", g.finalizer)
	}
	return nil
}

// isDeleting reports whether a write is to an object that is being deleted. Only the stored deletion timestamp counts:
// the one that a client sends is ignored.
func isDeleting(a admission.Attributes) (bool, error) {
	if a.GetOperation() == admission.Create {
		return false, nil
	}
	old, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return false, err
	}
	return old.GetDeletionTimestamp() != nil, nil
}
