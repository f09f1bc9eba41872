package template

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// maxMessage bounds the messages of backends in the status.
const maxMessage = 2048

// maxCondition bounds the messages of conditions. A schema may have thousands of errors.
const maxCondition = 4096

// findBackend finds the backend that the Template names. A Template whose backend this process does not have stays as it is.
func (r *Reconciler) findBackend(_ context.Context, s *scope) error {
	name := s.template.Spec.Backend
	found, ok := r.Backends.Get(name)
	if !ok {
		return &problem{condition: infrastructurev1alpha1.ConditionBackendReady, reason: infrastructurev1alpha1.ReasonBackendNotFound, wait: true,
			message: fmt.Sprintf("there is no backend %q; those of this provider are %s", name, strings.Join(r.Backends.Names(), ", "))}
	}
	s.backend = found
	return nil
}

// validate returns errors in the Template before anything is written.
func (r *Reconciler) validate(ctx context.Context, s *scope) error {
	owner := ""
	if s.definition != nil {
		owner = s.definition.Labels[LabelTemplate(r.Group)]
	}
	if errs := Validate(s.template, r.Group, owner, s.others); len(errs) > 0 {
		return invalid(errs.ToAggregate().Error(), 0)
	}
	if s.definition == nil && len(s.previous) > 0 {
		return invalid(fmt.Sprintf("metadata.name: CustomResourceDefinition %s is of a previous Template of this name that was not removed by the provider, and may have instances; "+
			"give this Template another name, or the kind of the previous one to have its instances provided or removed", s.previous[0]), retryInterval)
	}
	if s.definition != nil && owner != s.template.Name {
		return &problem{condition: infrastructurev1alpha1.ConditionCRDEstablished, reason: infrastructurev1alpha1.ReasonCRDError,
			message: fmt.Sprintf("CustomResourceDefinition %s exists and is not this Template's; delete it, or name another resource", s.definition.Name)}
	}
	return r.validateChange(ctx, s)
}

// defineKind writes the CRD in the provider's workspace, which tenants do not see, and waits until it is established.
func (r *Reconciler) defineKind(ctx context.Context, s *scope) error {
	failed := func(err error) error {
		return &problem{condition: infrastructurev1alpha1.ConditionCRDEstablished, reason: infrastructurev1alpha1.ReasonCRDError, message: err.Error(), cause: err}
	}
	if err := r.applyDefinition(ctx, s); err != nil {
		return failed(err)
	}
	if !apihelpers.IsCRDConditionTrue(s.definition, apiextensionsv1.Established) {
		if refused := refusedNames(s.definition); refused != "" {
			return &problem{condition: infrastructurev1alpha1.ConditionCRDEstablished, reason: infrastructurev1alpha1.ReasonCRDError,
				message: "the names of CustomResourceDefinition " + s.definition.Name + " are refused: " + refused}
		}
		return &problem{condition: infrastructurev1alpha1.ConditionCRDEstablished, reason: infrastructurev1alpha1.ReasonAwaitingEstablish, wait: true,
			message: "waiting until CustomResourceDefinition " + s.definition.Name + " is established"}
	}
	return nil
}

// refusedNames returns why an API server refuses the names of a CRD, for example because another CRD has them. It returns an empty string if
// the server accepts them, or has not decided yet.
func refusedNames(definition *apiextensionsv1.CustomResourceDefinition) string {
	condition := apihelpers.FindCRDCondition(definition, apiextensionsv1.NamesAccepted)
	if condition == nil || condition.Status != apiextensionsv1.ConditionFalse {
		return ""
	}
	return cmp.Or(condition.Message, condition.Reason)
}

// applyDefinition creates or updates the CRD.
func (r *Reconciler) applyDefinition(ctx context.Context, s *scope) error {
	wanted, err := Definition(s.template, s.base)
	if err != nil {
		return err
	}
	s.wanted = wanted.DeepCopy()
	if s.definition == nil {
		s.definition = wanted
		if err := r.Client.Create(ctx, s.definition); err != nil {
			return fmt.Errorf("creating the definition: %w", err)
		}
		return nil
	}
	// Copy the default that the server sets, so that an unchanged CRD is not written.
	wanted.Spec.Conversion = s.definition.Spec.Conversion
	if equality.Semantic.DeepEqual(wanted.Spec, s.definition.Spec) && labels.SelectorFromSet(wanted.Labels).Matches(labels.Set(s.definition.Labels)) {
		return nil
	}
	updated := s.definition.DeepCopy()
	updated.Spec, updated.Labels = wanted.Spec, labels.Merge(updated.Labels, wanted.Labels)
	if err := r.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("updating the definition: %w", err)
	}
	s.definition = updated
	return nil
}

// setUp calls the backend. The export keeps the schema of an earlier generation until the call succeeds.
func (r *Reconciler) setUp(ctx context.Context, s *scope) error {
	var answer backend.Status
	started := time.Now()
	err := withoutPanic(func() (err error) {
		answer, err = s.backend.SetupTemplate(ctx, s.template.DeepCopy())
		return err
	})
	observeSetUp(s.template, started, answer.Ready, err)
	status := &s.template.Status.Backend
	if err != nil {
		status.Ready, status.Message = false, shortname.Truncate(err.Error(), maxMessage)
		return &problem{condition: infrastructurev1alpha1.ConditionBackendReady, reason: infrastructurev1alpha1.ReasonBackendError, message: status.Message, cause: err}
	}
	status.Ready, status.Message = answer.Ready, shortname.Truncate(answer.Message, maxMessage)
	if !answer.Ready {
		return &problem{condition: infrastructurev1alpha1.ConditionBackendReady, reason: infrastructurev1alpha1.ReasonBackendNotReady, message: status.Message}
	}
	return nil
}

// export creates the schema and lists it in the exports that offer the Template.
func (r *Reconciler) export(ctx context.Context, s *scope) error {
	failed := func(err error) error {
		return &problem{condition: infrastructurev1alpha1.ConditionSchemaInAPIExport, reason: infrastructurev1alpha1.ReasonAPIExportError, message: err.Error(), cause: err}
	}
	var err error
	if s.schema, err = r.createSchema(ctx, s, s.wanted); err != nil {
		return failed(err)
	}
	if err := r.listIn(ctx, s); err != nil {
		return failed(err)
	}
	s.exported = true
	return nil
}

// createSchema creates the schema of a CRD if it does not exist.
func (r *Reconciler) createSchema(ctx context.Context, s *scope, definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	schema, err := Schema(definition)
	if err != nil {
		return nil, err
	}
	schema.Labels = map[string]string{LabelTemplate(r.Group): s.template.Name}
	if err := EnsureSchema(ctx, r.Client, r.Group, schema); err != nil {
		return nil, fmt.Errorf("creating the schema: %w", err)
	}
	return schema, nil
}

// EnsureSchema creates a schema if it does not exist. An existing one may be a previous schema that the cleaner is about to delete as
// unused. EnsureSchema marks it as used, and the cleaner deletes only schemas that have not changed since it read them.
func EnsureSchema(ctx context.Context, c client.Client, group string, schema *apisv1alpha1.APIResourceSchema) error {
	err := reuseSchema(ctx, c, group, schema.Name)
	if apierrors.IsNotFound(err) {
		return client.IgnoreAlreadyExists(c.Create(ctx, schema.DeepCopy())) // the cache may not contain a schema that was just created
	}
	return err
}

// reuseSchema removes the annotation that a schema is unused. A finalizer blocks the deletion of a schema that an export lists. If no export
// lists a schema that is being deleted, reuseSchema returns an error, so that the caller retries when the schema is gone.
func reuseSchema(ctx context.Context, c client.Client, group, name string) error {
	existing, key := &apisv1alpha1.APIResourceSchema{}, AnnotationUnusedSince(group)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, existing); err != nil {
		return err
	}
	if !existing.DeletionTimestamp.IsZero() {
		if listed, err := ListedSchemas(ctx, c); err != nil || listed[name] {
			return err
		}
		return fmt.Errorf("APIResourceSchema %s is being deleted: it is created again once it is gone", name)
	}
	if _, noted := existing.Annotations[key]; !noted {
		return nil
	}
	patch := client.MergeFrom(existing.DeepCopy())
	delete(existing.Annotations, key)
	return c.Patch(ctx, existing, patch)
}

// withoutPanic calls a backend and returns an error if it panics, so that a panic affects only the Template of the call.
func withoutPanic(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the backend panicked: %v", cause)
		}
	}()
	return call()
}
