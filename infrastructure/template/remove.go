package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/infrastructure/template/export"
)

// isOwn reports whether the kind belongs to this Template. A Template that was never published must not remove anything: the names in its
// spec may belong to another. If somebody has deleted the CRD, the status reports whether the kind is exported.
func (r *Reconciler) isOwn(s *scope) bool {
	if s.definition == nil {
		return s.template.Status.Registered.SchemaInAPIExport
	}
	return s.definition.Labels[LabelTemplate(r.Group)] == s.template.Name
}

// closeInterval is how often the controller checks whether bindings have the schema that refuses new instances, and whether abandoned
// instances are released.
const closeInterval = time.Second

// closeKind changes the exported schema so that it refuses new instances. It uses the exported schema as the base, because validation may have
// refused the last edit of the Template, and the CRD may contain an edit that the backend has refused. Bindings do not get a new schema from
// an export that is being deleted, so the provider does not provide instances that they create from now on.
func (r *Reconciler) closeKind(ctx context.Context, s *scope) error {
	if !r.isOwn(s) {
		return nil
	}
	if err := r.findExports(ctx, s); err != nil {
		return removing(err)
	}
	if len(s.bindable) == 0 {
		return nil
	}
	exported, err := exportedDefinition(s)
	if err != nil {
		return removing(fmt.Errorf("closing the kind: %w", err))
	}
	s.wanted = Closed(exported)
	return r.export(ctx, s)
}

// findExports finds the exports that still list a Template, and which of them update the schemas of bindings. It reads them from the server,
// because an interrupted reconciliation may have changed the entries before it could update the status.
func (r *Reconciler) findExports(ctx context.Context, s *scope) error {
	ending, err := r.isWorkspaceDeleted(ctx)
	if err != nil {
		return err
	}
	names, registered := s.template.Spec.InstanceCRD, &s.template.Status.Registered
	exports, err := r.allExports(ctx, registered.Exports)
	if err != nil {
		return err
	}
	registered.Exports = nil
	for _, name := range exports {
		current := &apisv1alpha2.APIExport{}
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, current)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("reading APIExport %s: %w", name, err)
		case !slices.ContainsFunc(current.Spec.Resources, export.IsEntryOf(names.Resource, names.Group)):
			continue
		case current.DeletionTimestamp.IsZero() && !ending:
			s.bindable = append(s.bindable, name)
		}
		registered.Exports = append(registered.Exports, name)
	}
	registered.SchemaInAPIExport = len(registered.Exports) > 0
	return nil
}

// allExports returns the exports that the status names, and all that may list a Template.
func (r *Reconciler) allExports(ctx context.Context, registered []string) ([]string, error) {
	offers, err := r.offers(ctx)
	if err != nil {
		return nil, err
	}
	exports := sets.New(registered...)
	for _, o := range offers {
		exports.Insert(o.export)
	}
	return sets.List(exports), nil
}

// isWorkspaceDeleted reports whether the provider's workspace is being deleted. It returns false if the provider may not read that.
func (r *Reconciler) isWorkspaceDeleted(ctx context.Context) (bool, error) {
	cluster := &corev1alpha1.LogicalCluster{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether the workspace is being deleted: %w", err)
	}
	return cluster.DeletionTimestamp != nil, nil
}

// exportedDefinition returns a CRD with the content of the exported schema. If somebody has deleted the schema, it falls back to the CRD.
func exportedDefinition(s *scope) (*apiextensionsv1.CustomResourceDefinition, error) {
	switch {
	case s.served != nil:
		definition, err := withServed(nil, s.served)
		if err != nil {
			return nil, err
		}
		definition.Spec.Group, definition.Spec.Names, definition.Spec.Scope = s.served.Spec.Group, s.served.Spec.Names, s.served.Spec.Scope
		return definition, nil
	case s.definition != nil:
		return s.definition, nil
	}
	return Definition(s.template, nil)
}

// removeInstances removes all instances with the objects of their backends, and waits until they are gone and no new ones can be created. It
// releases abandoned instances without removing their objects.
func (r *Reconciler) removeInstances(ctx context.Context, s *scope) error {
	if !r.isOwn(s) || !s.template.Status.Registered.SchemaInAPIExport {
		return nil
	}
	waiting := &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonDraining}
	remove := r.Instances.Remove
	_, abandon := s.template.Annotations[backend.AnnotationAbandon(r.Group)]
	if abandon {
		remove, waiting.after = r.Instances.Abandon, closeInterval
	}
	left, err := remove(ctx, s.template)
	if err == nil && left == 0 {
		behind := 0
		if len(s.bindable) > 0 {
			behind, err = r.behind(ctx, s.template, s.bindable, s.schema.Name)
		}
		if err == nil && behind > 0 {
			waiting.message, waiting.after = fmt.Sprintf("waiting until %d bindings refuse new instances", behind), closeInterval
			return waiting
		}
		if err == nil { // an instance may have been created before its binding refused new ones
			left, err = remove(ctx, s.template)
		}
	}
	switch {
	case err != nil:
		return removing(fmt.Errorf("removing instances: %w", err))
	case left > 0 && abandon:
		waiting.message = fmt.Sprintf("abandoning %d instances", left)
		return waiting
	case left > 0:
		waiting.message = fmt.Sprintf("waiting for %d instances to be removed; annotate the Template with %s to abandon them", left, backend.AnnotationAbandon(r.Group))
		return waiting
	case abandon:
		r.Events.Eventf(s.template, nil, corev1.EventTypeWarning, "InstancesAbandoned", "Remove", "instances were not waited for, as an annotation asks; what they are made of may be left")
	}
	return nil
}

// tearDown calls all backends that may have set up the Template.
func (r *Reconciler) tearDown(ctx context.Context, s *scope) error {
	if len(s.previous) > 0 {
		return nil // objects that backends associate with this name may belong to existing instances
	}
	names := []string{s.template.Status.Backend.Name, s.template.Spec.Backend}
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		if err := r.tearDownBackend(ctx, s, name); err != nil {
			return err
		}
	}
	return nil
}

// tearDownBackend calls one backend. It cannot call one that this process does not have, and records an event instead.
func (r *Reconciler) tearDownBackend(ctx context.Context, s *scope, name string) error {
	found, ok := r.Backends.Get(name)
	if !ok {
		r.Events.Eventf(s.template, nil, corev1.EventTypeWarning, infrastructurev1alpha1.ReasonBackendNotFound, "Remove", "there is no backend %q to tear the template down", name)
		return nil
	}
	err := withoutPanic(func() error { return found.TeardownTemplate(ctx, s.template.DeepCopy()) })
	if left, ok := errors.AsType[*backend.InstancesLeftError](err); ok {
		return &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonDraining, after: closeInterval,
			message: shortname.Truncate(fmt.Sprintf("backend %q: %s", name, left.Message), maxMessage)}
	}
	if err != nil {
		return &problem{condition: infrastructurev1alpha1.ConditionBackendReady, reason: infrastructurev1alpha1.ReasonBackendError, message: shortname.Truncate(err.Error(), maxMessage), cause: err}
	}
	return nil
}

// removeExport removes the kind from all exports, and deletes its schemas. If neither CRD nor status identify the kind as this Template's, it
// removes the entries of schemas with the label of the Template: an interrupted reconciliation with a stale cache may have created them again.
func (r *Reconciler) removeExport(ctx context.Context, s *scope) error {
	if len(validation.IsValidLabelValue(s.template.Name)) > 0 || len(s.previous) > 0 && !r.isOwn(s) {
		return nil // validation has refused the Template for its name
	}
	var schemas apisv1alpha1.APIResourceSchemaList
	if err := r.Live.List(ctx, &schemas, client.MatchingLabels{LabelTemplate(r.Group): s.template.Name}); err != nil {
		return removing(fmt.Errorf("listing schemas: %w", err))
	}
	names := s.template.Spec.InstanceCRD
	change := export.Unlisted(names.Resource, names.Group)
	if !r.isOwn(s) {
		if len(schemas.Items) == 0 {
			return nil
		}
		change = export.UnlistedSchemas(schemas.Items)
	}
	exports, err := r.allExports(ctx, s.template.Status.Registered.Exports)
	if err != nil {
		return removing(err)
	}
	for _, export := range exports {
		if err := r.exports.Change(ctx, r.Client, r.Live, export, change); client.IgnoreNotFound(err) != nil {
			return removing(err)
		}
	}
	if err := r.Client.DeleteAllOf(ctx, &apisv1alpha1.APIResourceSchema{}, client.MatchingLabels{LabelTemplate(r.Group): s.template.Name}); err != nil {
		return removing(fmt.Errorf("deleting schemas: %w", err))
	}
	s.template.Status.Registered.SchemaInAPIExport, s.template.Status.Registered.Exports, s.exported = false, nil, false
	return nil
}

// removeKind deletes the CRD and waits until it is gone.
func (r *Reconciler) removeKind(ctx context.Context, s *scope) error {
	if s.definition == nil || !r.isOwn(s) {
		return nil
	}
	err := r.Client.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: s.definition.ObjectMeta})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return removing(fmt.Errorf("deleting the definition: %w", err))
	}
	return &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonDraining, wait: true, message: "waiting until the definition is deleted"}
}

// removing returns the problem for an error during removal, which is retried.
func removing(err error) error {
	return &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonDraining, message: err.Error(), cause: err}
}
