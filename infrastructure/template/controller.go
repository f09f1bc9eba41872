package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// retryInterval is the interval of retries where no event tells that something has changed, such as a backend that is not ready.
const retryInterval = 10 * time.Second

// Instances are the instances of a kind in all workspaces that have bound the export. Methods fail unless all workspaces could be
// reached.
type Instances interface {
	// Each calls a function for each of them.
	Each(ctx context.Context, template *infrastructurev1alpha1.Template, call func(*unstructured.Unstructured) error) error
	// Rewrite writes each of them as it is, at a bounded rate, so that it is stored in the present storage version, and that nobody owns fields
	// of it in a version that the Template retires. It skips those whose UIDs are in written, and adds those that are written.
	Rewrite(ctx context.Context, template *infrastructurev1alpha1.Template, written sets.Set[types.UID]) error
	// Bindings calls a function for each binding of exports.
	Bindings(ctx context.Context, exports []string, call func(*apisv1alpha2.APIBinding) error) error
	// Count returns their number.
	Count(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// Remove gives all of them the phase TemplateRemoved, deletes them, and returns how many are left.
	Remove(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// TellTemplateNotFound tells all of them that their Template does not exist. Nothing else of them changes.
	TellTemplateNotFound(ctx context.Context, template *infrastructurev1alpha1.Template) error
	// Abandon deletes all of them as Remove does, lets go those whose backend has not removed what it made, and returns for how many
	// that was not done yet.
	Abandon(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// Provided returns the number of those that the backend may have made something for.
	Provided(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
}

// Reconciler publishes Templates: it keeps their definitions, schemas and entries of the export, and calls their backends.
type Reconciler struct {
	// Client is a client of the workspace of the provider. Its Templates are in Group. Live reads the same without a cache.
	Client client.Client
	Live   client.Reader
	// Group is the API group of the provider, Export the name of its APIExport.
	Group, Export string
	// Selector selects the Templates of Export; nil for all. Catalogues have exports of their own.
	Selector  labels.Selector
	Backends  *backend.Registry
	Instances Instances
	Events    events.EventRecorder

	exports exportWriter
}

// Finalizer returns the finalizer of Templates of a group.
func Finalizer(group string) string { return "templates." + group + "/reconcile" }

// CatalogueFinalizer returns the finalizer of Catalogues of a group.
func CatalogueFinalizer(group string) string { return "catalogues." + group + "/reconcile" }

// LabelReady returns the key of the label of Templates that tenants may see. Its value is "true".
func LabelReady(group string) string { return group + "/ready" }

// conflictInterval is when a change is tried again that others were faster than: soon the cache has theirs.
const conflictInterval = 100 * time.Millisecond

// Reconcile publishes one Template, or removes what was published of it. Conflicts are part of that, and no errors to be logged.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.observe(ctx, req.Name)
	if apierrors.IsNotFound(err) {
		forget(req.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	finalizer := Finalizer(r.Group)
	removing := !s.template.DeletionTimestamp.IsZero()
	switch {
	case removing && !controllerutil.ContainsFinalizer(s.template, finalizer):
		return ctrl.Result{}, nil
	case !removing && !controllerutil.ContainsFinalizer(s.template, finalizer):
		patch := client.MergeFromWithOptions(s.template.DeepCopy(), client.MergeFromWithOptimisticLock{})
		controllerutil.AddFinalizer(s.template, finalizer)
		if err := r.Client.Patch(ctx, s.template, patch); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	before := s.template.DeepCopy()
	steps := []step{r.findBackend, r.validate, r.defineKind, r.setUp, r.takeOver, r.export}
	if removing {
		steps = []step{r.closeKind, r.removeInstances, r.tearDown, r.removeExport, r.removeKind}
	}
	var failed error
	for _, step := range steps {
		if err := step(ctx, s); err != nil {
			failed = err
			break
		}
	}
	if removing && failed == nil {
		patch := client.MergeFromWithOptions(s.template.DeepCopy(), client.MergeFromWithOptimisticLock{})
		controllerutil.RemoveFinalizer(s.template, finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, s.template, patch))
	}
	result, failed := outcome(s, failed)
	return result, errors.Join(failed, r.writeStatus(ctx, s, before))
}

// observe reads what the steps decide by.
func (r *Reconciler) observe(ctx context.Context, name string) (*scope, error) {
	s := &scope{template: &infrastructurev1alpha1.Template{}}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, s.template); err != nil {
		return nil, err
	}
	var all infrastructurev1alpha1.TemplateList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return nil, fmt.Errorf("listing templates: %w", err)
	}
	s.others = all.Items
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: DefinitionName(s.template)}, definition)
	switch {
	case err == nil:
		s.definition = definition
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	if err := r.observeFormer(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observeServed(ctx, s); err != nil {
		return nil, err
	}
	s.base, err = withServed(s.definition, s.served)
	return s, err
}

// observeFormer finds the kinds of a lost Template of the same name: its finalizer was removed by another client, and it may have instances.
func (r *Reconciler) observeFormer(ctx context.Context, s *scope) error {
	if len(validation.IsValidLabelValue(s.template.Name)) > 0 {
		return nil // no definition can have it
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := r.Client.List(ctx, &definitions, client.MatchingLabels{LabelTemplate(r.Group): s.template.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing definitions: %w", err)
	}
	for i := range definitions.Items {
		if name := definitions.Items[i].Name; name != DefinitionName(s.template) {
			s.former = append(s.former, name)
		}
	}
	slices.Sort(s.former)
	return nil
}

// observeServed reads what the export has of a Template. A schema that the cache does not have may have been created a moment ago: without
// it, an edit would not be compared with anything.
func (r *Reconciler) observeServed(ctx context.Context, s *scope) error {
	registered := s.template.Status.Registered
	if !registered.SchemaInAPIExport {
		return nil
	}
	served := &apisv1alpha1.APIResourceSchema{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: registered.SchemaName}, served)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, types.NamespacedName{Name: registered.SchemaName}, served)
	}
	switch {
	case err == nil:
		s.served = served
	case !apierrors.IsNotFound(err): // one that was deleted by hand is created anew
		return fmt.Errorf("reading the schema of the export: %w", err)
	}
	return nil
}

// writeStatus writes status and the label of Templates that tenants may see, where they have changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, before *infrastructurev1alpha1.Template) error {
	s.setStatus()
	if !equality.Semantic.DeepEqual(before.Status, s.template.Status) {
		if err := r.Client.Status().Patch(ctx, s.template.DeepCopy(), client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
		r.recordChange(before, s.template)
	}
	key, ready := LabelReady(r.Group), isReady(s.template)
	if (s.template.Labels[key] == "true") == ready {
		return nil
	}
	labelled := &infrastructurev1alpha1.Template{}
	labelled.Name = s.template.Name
	value := "null"
	if ready {
		value = `"true"`
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, value))
	if err := r.Client.Patch(ctx, labelled, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling: %w", err)
	}
	return nil
}
