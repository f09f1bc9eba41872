package catalogue

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

const (
	// repairInterval is how often a Catalogue is reconciled without a change.
	repairInterval = 5 * time.Minute
	// inUseInterval is how often the controller checks whether a deleted Catalogue is still bound.
	inUseInterval = 10 * time.Second
	// offerTimeout bounds the wait for servers to complete the objects of an export.
	offerTimeout = time.Minute
)

// Reconciler reconciles Catalogues: it creates, updates and deletes their exports.
type Reconciler struct {
	// Client is an uncached client of the provider's workspace.
	Client    client.Client
	Options   Options
	Instances template.Instances
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ending := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp())
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("catalogue").For(&infrastructurev1alpha1.Catalogue{}).
		// Reconcile creates an export again that somebody has deleted.
		Watches(&apisv1alpha2.APIExport{}, handler.EnqueueRequestsFromMapFunc(r.ofExport), builder.WithPredicates(ending)).
		Complete(r)
}

// ofExport returns the requests for the Catalogues of an export.
func (r *Reconciler) ofExport(ctx context.Context, export client.Object) []reconcile.Request {
	var all infrastructurev1alpha1.CatalogueList
	if err := r.Client.List(ctx, &all); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list catalogues")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Spec.Export == export.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// Reconcile brings up the export of one Catalogue, or deletes it once it has no bindings.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &infrastructurev1alpha1.Catalogue{}
	if err := r.Client.Get(ctx, req.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	finalizer := template.CatalogueFinalizer(r.Options.Group)
	if !c.DeletionTimestamp.IsZero() {
		return r.remove(ctx, c, finalizer)
	}
	if reason, err := r.validate(ctx, c); reason != "" || err != nil {
		return ctrl.Result{}, errors.Join(err, r.setReady(ctx, c, infrastructurev1alpha1.ReasonInvalidSpec, reason))
	}
	if controllerutil.AddFinalizer(c, finalizer) {
		if err := r.Client.Update(ctx, c); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.TemplateSelector)
	if err != nil {
		return ctrl.Result{}, reconcile.TerminalError(err) // validate has already checked it
	}
	export := &apisv1alpha2.APIExport{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: c.Spec.Export}, export); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading APIExport %s: %w", c.Spec.Export, err)
	}
	if export.DeletionTimestamp != nil {
		return ctrl.Result{RequeueAfter: repairInterval}, r.setReady(ctx, c, infrastructurev1alpha1.ReasonAPIExportError, template.DeletedMessage(export, r.Options.Group))
	}
	waiting, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	if err := ensureOffer(waiting, r.Client, r.Options.Group, offer{c.Spec.Export, c.Spec.Export, selector, c.Spec.Binders}); err != nil {
		return ctrl.Result{}, errors.Join(err, r.setReady(ctx, c, infrastructurev1alpha1.ReasonAPIExportError, err.Error()))
	}
	return ctrl.Result{RequeueAfter: repairInterval}, r.setReady(ctx, c, infrastructurev1alpha1.ReasonReady, "")
}

// validate returns why a Catalogue is invalid. If two name the same export, it belongs to the one that has the finalizer.
func (r *Reconciler) validate(ctx context.Context, c *infrastructurev1alpha1.Catalogue) (string, error) {
	if _, err := metav1.LabelSelectorAsSelector(&c.Spec.TemplateSelector); err != nil {
		return "spec.templateSelector: " + err.Error(), nil
	}
	switch c.Spec.Export {
	case publication:
		return fmt.Sprintf("spec.export: %s is the name of the publication of Templates; name another one", publication), nil
	case r.Options.Export:
		return fmt.Sprintf("spec.export: %s is the export of the provider itself; name another one", r.Options.Export), nil
	}
	finalizer := template.CatalogueFinalizer(r.Options.Group)
	if controllerutil.ContainsFinalizer(c, finalizer) {
		return "", nil
	}
	var all infrastructurev1alpha1.CatalogueList
	if err := r.Client.List(ctx, &all); err != nil {
		return "", fmt.Errorf("listing catalogues: %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.Spec.Export == c.Spec.Export && controllerutil.ContainsFinalizer(other, finalizer) {
			return fmt.Sprintf("spec.export: %s is that of Catalogue %s", c.Spec.Export, other.Name), nil
		}
	}
	err := r.Client.Get(ctx, client.ObjectKey{Name: c.Spec.Export}, &apisv1alpha2.APIExport{})
	if err == nil {
		return fmt.Sprintf("spec.export: APIExport %s exists; name another one", c.Spec.Export), nil
	}
	return "", client.IgnoreNotFound(err)
}

// remove deletes the objects of a Catalogue. It waits while a workspace binds the export, because instances may exist.
func (r *Reconciler) remove(ctx context.Context, c *infrastructurev1alpha1.Catalogue, finalizer string) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(c, finalizer) {
		return ctrl.Result{}, nil
	}
	bound := 0
	err := r.Instances.Bindings(ctx, []string{c.Spec.Export}, func(*apisv1alpha2.APIBinding) error {
		bound++
		return nil
	})
	if apierrors.IsNotFound(err) {
		// Without the endpoint slice, the bindings of an existing export are unknown.
		if err = r.Client.Get(ctx, client.ObjectKey{Name: c.Spec.Export}, &apisv1alpha2.APIExport{}); err == nil {
			err = r.Client.Create(ctx, endpoints(c.Spec.Export))
			return ctrl.Result{RequeueAfter: inUseInterval}, client.IgnoreAlreadyExists(err)
		}
		err = client.IgnoreNotFound(err)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("counting the bindings of %s: %w", c.Spec.Export, err)
	}
	if bound > 0 {
		return ctrl.Result{RequeueAfter: inUseInterval}, r.setReady(ctx, c, infrastructurev1alpha1.ReasonInUse, fmt.Sprintf("waiting until %d workspaces have deleted their bindings of the export", bound))
	}
	if err := r.deleteOffer(ctx, c.Spec.Export); err != nil {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(c, finalizer)
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Update(ctx, c))
}

// deleteOffer deletes the export of a Catalogue and its objects. It does not delete the export of the provider itself, or an endpoint slice
// that serves another export.
func (r *Reconciler) deleteOffer(ctx context.Context, export string) error {
	if export == r.Options.Export {
		return nil
	}
	role, binding := binders(export, nil)
	objects := []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: binding.ObjectMeta}, &rbacv1.ClusterRole{ObjectMeta: role.ObjectMeta}, shell(export), endpoints(export),
	}
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: export}, slice)
	switch {
	case err == nil && slice.Spec.APIExport.Name == export:
		objects = append(objects, slice)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the endpoint slice of templates: %w", err)
	}
	for _, object := range objects {
		if err := r.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// setReady writes the condition and the observed generation if they have changed.
func (r *Reconciler) setReady(ctx context.Context, c *infrastructurev1alpha1.Catalogue, reason, message string) error {
	before := c.DeepCopy()
	condition := metav1.Condition{Type: infrastructurev1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: c.Generation}
	if reason == infrastructurev1alpha1.ReasonReady {
		condition.Status = metav1.ConditionTrue
	}
	if !meta.SetStatusCondition(&c.Status.Conditions, condition) && c.Status.ObservedGeneration == c.Generation {
		return nil
	}
	c.Status.ObservedGeneration = c.Generation
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, c, client.MergeFrom(before)))
}
