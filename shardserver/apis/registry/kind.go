// Package registry serves a compiled-in, cluster-scoped kind the way a CustomResourceDefinition with a status
// subresource would be served: spec and status written apart, generations, refusals with field errors, columns. It
// knows no kind: each group's package describes its kinds (Kind) and gets stock stores. Nothing here knows logical
// clusters; they are below, in the storage decorator.
package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is a pointer to one of our types.
type Object interface {
	runtime.Object
	metav1.ObjectMetaAccessor
}

// Kind describes one kind. T is a pointer to its type. All functions are required unless said otherwise; those that
// take two objects get the new one first.
type Kind[T Object] struct {
	// Resource is the group, version and plural name. T is of this version.
	Resource schema.GroupVersionResource
	// OtherVersions are further ones that the kind is served in, which the scheme converts. May be empty.
	OtherVersions []string
	// Singular is the name of one.
	Singular string
	// ShortNames are the resource's short names; may be empty.
	ShortNames []string

	New     func() T
	NewList func() runtime.Object

	// Default fills in what a client left out. May be nil.
	Default func(T)
	// Initialize sets the first status of an object, after Default. May be nil.
	Initialize func(T)
	// KeepStatus tells whether the status counts that a new object came with, KeepStatusOnUpdate whether that of a changed
	// one does. They are asked with the context of the request, and otherwise a status is dropped, as clients expect. May be
	// nil.
	KeepStatus, KeepStatusOnUpdate func(context.Context) bool
	// Derive writes into the metadata what follows from the rest of the object. It runs last in every write, whoever
	// writes, so that what it sets is always true. May be nil.
	Derive func(T)
	// CopySpec and CopyStatus make one half of the first object that of the second. The halves may be shared
	// afterwards: both objects belong to the request. A kind without a status has neither CopyStatus nor SameStatus nor
	// ValidateStatus; it gets no status subresource.
	CopySpec, CopyStatus func(to, from T)
	// SameSpec and SameStatus compare one half, in the sense of equality.Semantic.
	SameSpec, SameStatus func(a, b T) bool

	// ValidateName checks metadata.name on creation.
	ValidateName func(name string, path *field.Path) field.ErrorList
	// ValidateSpec and ValidateStatus check one half by itself.
	ValidateSpec, ValidateStatus func(obj T) field.ErrorList
	// ValidateTransition checks what may not change in the spec. May be nil.
	ValidateTransition func(obj, old T) field.ErrorList

	// ValidateVersion checks what only another version demands, of the spec that a client sent in that version. Such an
	// object has been converted, so that it must tell by what the conversion kept. May be nil.
	ValidateVersion map[string]func(obj T) field.ErrorList

	// Columns are shown after the name, and before the age unless AgeFirst is set.
	Columns  []Column[T]
	AgeFirst bool
	// VersionColumns are shown in place of Columns to who asks in another version. May be nil.
	VersionColumns map[string][]Column[T]
}

func (k *Kind[T]) hasStatus() bool { return k.CopyStatus != nil }

func (k *Kind[T]) groupResource() schema.GroupResource { return k.Resource.GroupResource() }

func objectMeta(obj Object) *metav1.ObjectMeta {
	// ObjectMeta is embedded by value in every type of ours, so that its accessor is itself.
	return obj.GetObjectMeta().(*metav1.ObjectMeta)
}
