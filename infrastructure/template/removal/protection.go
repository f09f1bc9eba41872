package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/atoll-dev/atoll/infrastructure/template"
)

const (
	// conflictInterval is the delay of a retry after a conflict, in which the cache receives the other change.
	conflictInterval = 100 * time.Millisecond
	// reconcileInterval is how often the finalizers are reconciled without an event.
	reconcileInterval = 5 * time.Minute
	// endingInterval is how often the controller checks whether an object that is being deleted can be released. An export that is deleted
	// alone may wait for days.
	endingInterval = 10 * time.Second
)

// Protection adds a finalizer to the objects that the provider needs to remove Templates, as long as Templates exist. The deletion of a
// workspace deletes all its objects at once. Without export, schemas and endpoint slice the provider cannot reach instances, and without the
// lease no replica runs.
type Protection struct {
	// Client reads from a cache; Live does not.
	Client client.Client
	Live   client.Client
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Lease identifies the lease of the replicas; an empty name means none.
	Lease client.ObjectKey
}

// SetupWithManager registers the controller.
func (p *Protection) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: p.Export}}}
	})
	changed := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}})
	c := ctrl.NewControllerManagedBy(mgr).Named("protection")
	for _, object := range []client.Object{
		&infrastructurev1alpha1.Template{}, &infrastructurev1alpha1.Catalogue{}, &apisv1alpha2.APIExport{}, &apisv1alpha1.APIExportEndpointSlice{},
		&apisv1alpha1.APIResourceSchema{},
	} {
		c = c.Watches(object, one, changed)
	}
	return c.Complete(p)
}

// Reconcile adds the finalizer to objects that are needed, and removes it from others.
func (p *Protection) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var exports apisv1alpha2.APIExportList
	var endpoints apisv1alpha1.APIExportEndpointSliceList
	var schemas apisv1alpha1.APIResourceSchemaList
	for _, list := range []client.ObjectList{&exports, &endpoints, &schemas} {
		if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // the caller only reads them
			return ctrl.Result{}, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	var protected []client.Object
	for i := range exports.Items {
		protected = append(protected, &exports.Items[i])
	}
	for i := range endpoints.Items {
		protected = append(protected, &endpoints.Items[i])
	}
	for i := range schemas.Items {
		protected = append(protected, &schemas.Items[i])
	}
	lease, err := p.lease(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if lease != nil {
		protected = append(protected, lease)
	}
	// The deletion of a workspace can end the watches of the cache before the cache observes the deletion of the last Template.
	ending := slices.ContainsFunc(protected, func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })
	used, err := p.use(ctx, exports.Items, ending)
	if err != nil {
		return ctrl.Result{}, err
	}
	errs, after := make([]error, 0, len(protected)), reconcileInterval
	for _, object := range protected {
		errs = append(errs, p.setFinalizer(ctx, object, used.has(object)))
	}
	if ending && (used.templates || used.catalogues) {
		after = endingInterval
	}
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

// lease returns the lease of the replicas, or nil if there is none.
func (p *Protection) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	if p.Lease.Name == "" {
		return nil, nil // there is none
	}
	lease := &coordinationv1.Lease{}
	if err := p.Live.Get(ctx, p.Lease, lease); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil // there is none
		}
		return nil, fmt.Errorf("reading the lease: %w", err)
	}
	return lease, nil
}

// use describes which objects Templates and Catalogues need.
type use struct {
	templates, catalogues bool
	exports, schemas      map[string]bool
	// current are the UIDs of the exports that are not being deleted, by name.
	current map[string]types.UID
}

func (u *use) has(object client.Object) bool {
	switch object.(type) {
	case *apisv1alpha1.APIResourceSchema:
		return u.schemas[object.GetName()]
	case *coordinationv1.Lease:
		return u.templates || u.catalogues
	case *apisv1alpha1.APIExportEndpointSlice:
		return u.exports[object.GetName()] && !u.isOrphaned(object)
	default: // exports
		return u.exports[object.GetName()]
	}
}

// isOrphaned reports whether an endpoint slice is owned by a previous export of its name, as the default slice of an export that was deleted
// and created again is. The garbage collector deletes it, and the server creates one for the current export once it is gone.
func (u *use) isOrphaned(slice client.Object) bool {
	current, exists := u.current[slice.GetName()]
	return exists && slices.ContainsFunc(slice.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return owner.Kind == "APIExport" && owner.Name == slice.GetName() && owner.UID != current
	})
}

// use returns which objects Templates and Catalogues need. It reads them from the cache, or without it if live is set.
func (p *Protection) use(ctx context.Context, exports []apisv1alpha2.APIExport, live bool) (*use, error) {
	var templates infrastructurev1alpha1.TemplateList
	var catalogues infrastructurev1alpha1.CatalogueList
	for resource, list := range map[string]client.ObjectList{"templates": &templates, "catalogues": &catalogues} {
		if err := p.list(ctx, resource, list, live); err != nil {
			return nil, err
		}
	}
	u := &use{schemas: map[string]bool{}, current: map[string]types.UID{}}
	u.templates = slices.ContainsFunc(templates.Items, func(t infrastructurev1alpha1.Template) bool {
		return controllerutil.ContainsFinalizer(&t, template.Finalizer(p.Group))
	})
	u.exports = map[string]bool{p.Export: u.templates}
	for i := range catalogues.Items {
		if c := &catalogues.Items[i]; controllerutil.ContainsFinalizer(c, template.CatalogueFinalizer(p.Group)) {
			u.exports[c.Spec.Export], u.catalogues = u.templates, true
		}
	}
	for i := range exports {
		if exports[i].DeletionTimestamp == nil {
			u.current[exports[i].Name] = exports[i].UID
		}
		for _, entry := range exports[i].Spec.Resources {
			u.schemas[entry.Schema] = u.schemas[entry.Schema] || u.exports[exports[i].Name]
		}
	}
	return u, nil
}

// list lists Templates or Catalogues. If their CRD does not exist, there are none, because the CRD is deleted after them.
func (p *Protection) list(ctx context.Context, resource string, list client.ObjectList, live bool) error {
	reader := p.Client
	if live {
		reader = p.Live
	}
	err := reader.List(ctx, list, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if read := p.Live.Get(ctx, client.ObjectKey{Name: resource + "." + p.Group}, definition); apierrors.IsNotFound(read) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource, err)
	}
	return nil
}

// setFinalizer adds or removes the finalizer. It adds none to an object that is being deleted.
func (p *Protection) setFinalizer(ctx context.Context, object client.Object, inUse bool) error {
	finalizer := template.InUseFinalizer(p.Group)
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
	err := p.Live.Patch(ctx, changed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("changing the finalizers of %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
