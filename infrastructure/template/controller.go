// Package template turns Templates into CRDs, and into schemas in the export of the provider.
//
// Decisions that do not need a server are pure functions: Validate, Definition, Schema and those of versions. The controller calls them, calls the
// backend, and writes objects.
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
	"github.com/atoll-dev/atoll/infrastructure/template/export"
)

// retryInterval is how often the controller retries if no event reports a change, for example if a backend is not ready.
const retryInterval = 10 * time.Second

// Instances accesses the instances of a kind in all workspaces that have bound the export. Methods return an error unless they could reach
// all workspaces.
type Instances interface {
	// Each calls a function for each instance.
	Each(ctx context.Context, template *infrastructurev1alpha1.Template, call func(*unstructured.Unstructured) error) error
	// Rewrite writes each instance unchanged, at a bounded rate, so that it is stored in the current storage version, and no manager owns
	// its fields in a version that the Template retires. It skips instances with UIDs in written, and adds those that it writes.
	Rewrite(ctx context.Context, template *infrastructurev1alpha1.Template, written sets.Set[types.UID]) error
	// Bindings calls a function for each binding of the exports.
	Bindings(ctx context.Context, exports []string, call func(*apisv1alpha2.APIBinding) error) error
	// Count returns the number of instances.
	Count(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// Remove sets the phase of all instances to TemplateRemoved, deletes them, and returns how many still exist.
	Remove(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// ReportTemplateNotFound reports in the status of all instances that their Template does not exist. It changes nothing else.
	ReportTemplateNotFound(ctx context.Context, template *infrastructurev1alpha1.Template) error
	// Abandon deletes all instances as Remove does, releases those whose backend has not removed their objects, and returns for how many
	// this is not complete.
	Abandon(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
	// Provided returns the number of instances for which the backend may have objects.
	Provided(ctx context.Context, template *infrastructurev1alpha1.Template) (int, error)
}

// Reconciler publishes Templates: it reconciles their CRDs, schemas and export entries, and calls their backends.
type Reconciler struct {
	// Client is a client of the provider's workspace, whose Templates are in Group. Live reads from the same workspace without a cache.
	Client client.Client
	Live   client.Reader
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Selector selects the Templates of Export; nil selects all. Catalogues have exports of their own.
	Selector  labels.Selector
	Backends  *backend.Registry
	Instances Instances
	Events    events.EventRecorder

	exports export.Writer
}

// Finalizer returns the finalizer of Templates of a group.
func Finalizer(group string) string { return "templates." + group + "/reconcile" }

// CatalogueFinalizer returns the finalizer of Catalogues of a group.
func CatalogueFinalizer(group string) string { return "catalogues." + group + "/reconcile" }

// InUseFinalizer returns the finalizer of objects that the provider of a group needs to remove Templates.
func InUseFinalizer(group string) string { return "templates." + group + "/in-use" }

// LabelReady returns the label key of Templates that tenants may see. Its value is "true".
func LabelReady(group string) string { return group + "/ready" }

// conflictInterval is the delay of a retry after a conflict, in which the cache receives the other change.
const conflictInterval = 100 * time.Millisecond

// Reconcile publishes one Template, or removes what it has published. It requeues after a conflict instead of returning an error, because
// conflicts are expected and should not be logged.
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
		deleteMetrics(req.Name)
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

// observe reads the objects that the steps depend on.
func (r *Reconciler) observe(ctx context.Context, name string) (*scope, error) {
	s := &scope{template: &infrastructurev1alpha1.Template{}}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, s.template); err != nil {
		return nil, err
	}
	var all infrastructurev1alpha1.TemplateList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil { // the steps only read them
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
	if err := r.observePrevious(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observeServed(ctx, s); err != nil {
		return nil, err
	}
	s.base, err = withServed(s.definition, s.served)
	return s, err
}

// observePrevious finds CRDs of an orphaned Template of the same name, whose finalizer another client has removed. They may have instances.
func (r *Reconciler) observePrevious(ctx context.Context, s *scope) error {
	if len(validation.IsValidLabelValue(s.template.Name)) > 0 {
		return nil // the name cannot be a label value, so no CRD has it
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := r.Client.List(ctx, &definitions, client.MatchingLabels{LabelTemplate(r.Group): s.template.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing definitions: %w", err)
	}
	for i := range definitions.Items {
		if name := definitions.Items[i].Name; name != DefinitionName(s.template) {
			s.previous = append(s.previous, name)
		}
	}
	slices.Sort(s.previous)
	return nil
}

// observeServed reads the exported schema of a Template. It reads a schema that is not in the cache from the server: it may have been created
// just before, and without it an edit would not be compared with anything.
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
	case !apierrors.IsNotFound(err): // a schema that somebody has deleted is created again
		return fmt.Errorf("reading the schema of the export: %w", err)
	}
	return nil
}

// writeStatus writes the status, and the label of Templates that tenants may see, if they have changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, before *infrastructurev1alpha1.Template) error {
	s.setStatus()
	if !equality.Semantic.DeepEqual(before.Status, s.template.Status) {
		if err := r.Client.Status().Patch(ctx, s.template.DeepCopy(), client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
		r.recordChange(before, s.template)
	}
	key, ready := LabelReady(r.Group), IsReady(s.template)
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
