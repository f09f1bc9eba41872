package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is the REST strategy of the main resource, which leaves the status to its subresource.
type strategy[T Object] struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *Kind[T]
}

var (
	_ rest.RESTCreateStrategy  = strategy[Object]{}
	_ rest.RESTUpdateStrategy  = strategy[Object]{}
	_ rest.RESTDeleteStrategy  = strategy[Object]{}
	_ rest.ResetFieldsStrategy = strategy[Object]{}
)

func (strategy[T]) NamespaceScoped() bool                         { return false }
func (strategy[T]) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }
func (strategy[T]) Canonicalize(runtime.Object)                   {}
func (s strategy[T]) typed(obj runtime.Object) T                  { return obj.(T) }

// forAllVersions returns the fields for every served version of the kind.
func (s strategy[T]) forAllVersions(fields *fieldpath.Set) map[fieldpath.APIVersion]*fieldpath.Set {
	version := s.kind.Resource.GroupVersion()
	sets := map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): fields}
	for _, other := range s.kind.OtherVersions {
		version.Version = other
		sets[fieldpath.APIVersion(version.String())] = fields
	}
	return sets
}

// GetResetFields returns the fields that server-side apply to the main resource must not change.
func (s strategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.kind.hasStatus() {
		return nil
	}
	return s.forAllVersions(fieldpath.NewSet(fieldpath.MakePathOrDie("status")))
}

// keepsStatus reports whether a write to the main resource keeps the status in the request, by a rule of the kind.
func (s strategy[T]) keepsStatus(ctx context.Context, rule func(context.Context) bool) bool {
	return s.kind.hasStatus() && rule != nil && rule(ctx)
}

// PrepareForCreate drops the status in the request and sets the first generation.
func (s strategy[T]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	created := s.typed(obj)
	if s.kind.hasStatus() && !s.keepsStatus(ctx, s.kind.KeepStatus) {
		s.kind.CopyStatus(created, s.kind.New())
	}
	if s.kind.Default != nil {
		s.kind.Default(created)
	}
	if s.kind.Initialize != nil {
		s.kind.Initialize(created)
	}
	objectMeta(created).Generation = 1
	s.derive(created)
}

func (s strategy[T]) derive(obj T) {
	if s.kind.Derive != nil {
		s.kind.Derive(obj)
	}
}

// PrepareForUpdate keeps the stored status and increments the generation if the spec changed.
func (s strategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	updated, oldObj := s.typed(obj), s.typed(old)
	if s.kind.hasStatus() && !s.keepsStatus(ctx, s.kind.KeepStatusOnUpdate) {
		s.kind.CopyStatus(updated, oldObj)
	}
	if !s.kind.SameSpec(updated, oldObj) {
		objectMeta(updated).Generation = objectMeta(oldObj).Generation + 1
	}
	s.derive(updated)
}

// Validate validates a new object, with its status if that is kept.
func (s strategy[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	created := s.typed(obj)
	errs := s.kind.ValidateName(objectMeta(created).Name, field.NewPath("metadata", "name"))
	errs = append(errs, s.kind.ValidateSpec(created)...)
	if s.keepsStatus(ctx, s.kind.KeepStatus) {
		errs = append(errs, s.kind.ValidateStatus(created)...)
	}
	return append(errs, s.validateVersion(ctx, created)...)
}

// validateVersion runs the additional validation of the request's API version.
func (s strategy[T]) validateVersion(ctx context.Context, obj T) field.ErrorList {
	if len(s.kind.ValidateVersion) == 0 {
		return nil
	}
	if info, ok := request.RequestInfoFrom(ctx); ok {
		if validate := s.kind.ValidateVersion[info.APIVersion]; validate != nil {
			return validate(obj)
		}
	}
	return nil
}

// ValidateUpdate checks a changed spec. An unchanged spec is always valid, so that metadata of stored objects can be
// written after rules became stricter.
func (s strategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	updated, oldObj := s.typed(obj), s.typed(old)
	errs := s.validateVersion(ctx, updated)
	if s.keepsStatus(ctx, s.kind.KeepStatusOnUpdate) && !s.kind.SameStatus(updated, oldObj) {
		errs = append(errs, s.validateStatus(updated, oldObj)...)
	}
	if s.kind.SameSpec(updated, oldObj) {
		return errs
	}
	errs = append(errs, s.kind.ValidateSpec(updated)...)
	if s.kind.ValidateTransition != nil {
		errs = append(errs, s.kind.ValidateTransition(updated, oldObj)...)
	}
	return errs
}

// validateStatus validates a changed status.
func (s strategy[T]) validateStatus(updated, old T) field.ErrorList {
	errs := s.kind.ValidateStatus(updated)
	if s.kind.ValidateStatusTransition != nil {
		errs = append(errs, s.kind.ValidateStatusTransition(updated, old)...)
	}
	return errs
}

// WarningsOnCreate returns the warnings for finalizers.
func (s strategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return finalizerWarnings(objectMeta(s.typed(obj)).Finalizers, nil)
}

// WarningsOnUpdate returns the warnings for added finalizers.
func (s strategy[T]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return finalizerWarnings(objectMeta(s.typed(obj)).Finalizers, objectMeta(s.typed(old)).Finalizers)
}

// statusStrategy is the REST strategy of the status subresource, which changes only the status.
type statusStrategy[T Object] struct {
	strategy[T]
}

// GetResetFields returns the fields that server-side apply to the status must not change.
func (s statusStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.forAllVersions(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")))
}

// PrepareForUpdate keeps the stored spec and metadata, except for managed fields and derived metadata.
func (s statusStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, oldObj := s.typed(obj), s.typed(old)
	s.kind.CopySpec(updated, oldObj)
	managedFields := objectMeta(updated).ManagedFields
	objectMeta(oldObj).DeepCopyInto(objectMeta(updated))
	objectMeta(updated).ManagedFields = managedFields
	s.derive(updated)
}

// ValidateUpdate validates a changed status.
func (s statusStrategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	updated, oldObj := s.typed(obj), s.typed(old)
	if s.kind.SameStatus(updated, oldObj) {
		return nil
	}
	return s.validateStatus(updated, oldObj)
}

// WarningsOnUpdate returns no warnings: finalizers cannot change here.
func (statusStrategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
