// Package registry creates generic registry stores for compiled-in, cluster-scoped kinds that behave like custom
// resources with a status subresource: separate writes of spec and status, generations, field errors, printer columns.
//
// The package of each group describes its kinds (Kind). This package must not depend on a kind or on logical clusters,
// which the storage decorator handles.
package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.ObjectMetaAccessor
}

// Kind describes one kind. T is a pointer to its type. All functions are required unless noted; those with two objects
// take the new one first.
type Kind[T Object] struct {
	// Resource is the group, version and plural name. T is of this version.
	Resource schema.GroupVersionResource
	// OtherVersions are further served versions, which the scheme converts. May be empty.
	OtherVersions []string
	// Singular is the singular name.
	Singular string
	// ShortNames are the resource's short names; may be empty.
	ShortNames []string

	New     func() T
	NewList func() runtime.Object

	// Default sets default values. May be nil.
	Default func(T)
	// Initialize sets the initial status of an object, after Default. May be nil.
	Initialize func(T)
	// KeepStatus reports whether a create request keeps its status, KeepStatusOnUpdate whether an update request does,
	// given the context of the request. By default the status is dropped. May be nil.
	KeepStatus, KeepStatusOnUpdate func(context.Context) bool
	// Derive sets metadata that depends on the rest of the object. It runs last in every write. May be nil.
	Derive func(T)
	// CopySpec and CopyStatus copy spec or status, which both objects may share afterwards. A kind without CopyStatus,
	// SameStatus and ValidateStatus has no status subresource.
	CopySpec, CopyStatus func(to, from T)
	// SameSpec and SameStatus compare spec or status like equality.Semantic.
	SameSpec, SameStatus func(a, b T) bool

	// ValidateName checks metadata.name on creation.
	ValidateName func(name string, path *field.Path) field.ErrorList
	// ValidateSpec and ValidateStatus check spec or status by itself.
	ValidateSpec, ValidateStatus func(obj T) field.ErrorList
	// ValidateTransition checks changes of the spec. May be nil.
	ValidateTransition func(obj, old T) field.ErrorList
	// ValidateStatusTransition checks changes of the status. May be nil.
	ValidateStatusTransition func(obj, old T) field.ErrorList

	// ValidateVersion checks rules of another version for objects that clients sent in that version. The object is
	// already converted. May be nil.
	ValidateVersion map[string]func(obj T) field.ErrorList

	// Columns are printed after the name; nil is the age alone.
	Columns Columns
	// VersionColumns replace Columns for requests in another version. May be nil.
	VersionColumns map[string]Columns
}

func (k *Kind[T]) hasStatus() bool { return k.CopyStatus != nil }

func (k *Kind[T]) groupResource() schema.GroupResource { return k.Resource.GroupResource() }

func objectMeta(obj Object) *metav1.ObjectMeta {
	// Every type embeds ObjectMeta by value, so that the accessor is *ObjectMeta.
	return obj.GetObjectMeta().(*metav1.ObjectMeta)
}
