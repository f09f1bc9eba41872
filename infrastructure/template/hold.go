package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// holdInterval is how often it is looked whether all is held, without an event.
const holdInterval = 5 * time.Minute

// Holder holds with a finalizer what the provider needs to remove Templates, as long as there are any: the deletion of a workspace deletes
// everything in it at once. Without export, schemas and endpoint slice no instance can be reached, and without the lease no replica works.
type Holder struct {
	// Client reads from a cache, Live does not.
	Client client.Client
	Live   client.Client
	// Group is the API group of the provider, Export the name of its APIExport.
	Group, Export string
	// Lease is the lease of the replicas; without a name there is none.
	Lease client.ObjectKey
}

// HoldFinalizer returns the finalizer of what the provider of a group needs to remove Templates.
func HoldFinalizer(group string) string { return "templates." + group + "/in-use" }

// SetupWithManager registers the controller.
func (h *Holder) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: h.Export}}}
	})
	changed := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}})
	c := ctrl.NewControllerManagedBy(mgr).Named("holder")
	for _, object := range []client.Object{
		&infrastructurev1alpha1.Template{}, &infrastructurev1alpha1.Catalogue{}, &apisv1alpha2.APIExport{}, &apisv1alpha1.APIExportEndpointSlice{},
		&apisv1alpha1.APIResourceSchema{},
	} {
		c = c.Watches(object, one, changed)
	}
	return c.Complete(h)
}

// Reconcile holds what is needed, and releases what is not.
func (h *Holder) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var templates infrastructurev1alpha1.TemplateList
	var catalogues infrastructurev1alpha1.CatalogueList
	var exports apisv1alpha2.APIExportList
	var endpoints apisv1alpha1.APIExportEndpointSliceList
	var schemas apisv1alpha1.APIResourceSchemaList
	for _, list := range []client.ObjectList{&templates, &catalogues, &exports, &endpoints, &schemas} {
		if err := h.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // they are only read
			return ctrl.Result{}, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	hasTemplates := slices.ContainsFunc(templates.Items, func(t infrastructurev1alpha1.Template) bool {
		return controllerutil.ContainsFinalizer(&t, Finalizer(h.Group))
	})
	inUse, hasCatalogues := map[string]bool{h.Export: hasTemplates}, false
	for i := range catalogues.Items {
		if c := &catalogues.Items[i]; controllerutil.ContainsFinalizer(c, CatalogueFinalizer(h.Group)) {
			inUse[c.Spec.Export], hasCatalogues = hasTemplates, true
		}
	}
	listed := map[string]bool{}
	var errs []error
	for i := range exports.Items {
		export := &exports.Items[i]
		for _, entry := range export.Spec.Resources {
			listed[entry.Schema] = listed[entry.Schema] || inUse[export.Name]
		}
		errs = append(errs, h.hold(ctx, export, inUse[export.Name]))
	}
	for i := range endpoints.Items {
		errs = append(errs, h.hold(ctx, &endpoints.Items[i], inUse[endpoints.Items[i].Name]))
	}
	for i := range schemas.Items {
		errs = append(errs, h.hold(ctx, &schemas.Items[i], listed[schemas.Items[i].Name]))
	}
	errs = append(errs, h.holdLease(ctx, hasTemplates || hasCatalogues))
	after := holdInterval
	errs = slices.DeleteFunc(errs, func(err error) bool {
		if apierrors.IsConflict(err) {
			after = conflictInterval
			return true
		}
		return false
	})
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

func (h *Holder) holdLease(ctx context.Context, inUse bool) error {
	if h.Lease.Name == "" {
		return nil
	}
	lease := &coordinationv1.Lease{}
	if err := h.Live.Get(ctx, h.Lease, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	return h.hold(ctx, lease, inUse)
}

// hold adds or removes the finalizer. What is being deleted gets none.
func (h *Holder) hold(ctx context.Context, object client.Object, inUse bool) error {
	finalizer := HoldFinalizer(h.Group)
	if controllerutil.ContainsFinalizer(object, finalizer) == inUse || inUse && object.GetDeletionTimestamp() != nil {
		return nil
	}
	changed, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return reconcile.TerminalError(fmt.Errorf("%T is no object", object))
	}
	if inUse {
		controllerutil.AddFinalizer(changed, finalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, finalizer)
	}
	err := h.Live.Patch(ctx, changed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("changing the finalizers of %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
