package registry

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// category is the category of all kinds of kcp, as in `kubectl get kcp`.
const category = "kcp"

// REST is the storage of the main resource of a kind.
type REST struct {
	*genericregistry.Store
	shortNames []string
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return []string{category} }

// NewStores creates the generic registry stores of a kind and adds them to into as "<resource>" and, if the kind has a
// status, "<resource>/status".
func NewStores[T Object](kind *Kind[T], typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, into map[string]rest.Storage) error {
	table, err := newTable(kind.Columns, kind.VersionColumns)
	if err != nil {
		return fmt.Errorf("printing %s: %w", kind.groupResource(), err)
	}
	write := strategy[T]{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: kind}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return kind.New() },
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  kind.groupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: kind.Resource.Group, Resource: kind.Singular},
		CreateStrategy:            write,
		UpdateStrategy:            write,
		DeleteStrategy:            write,
		ResetFieldsStrategy:       write,
		TableConvertor:            table,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		return fmt.Errorf("creating the store of %s: %w", kind.groupResource(), err)
	}
	into[kind.Resource.Resource] = &REST{Store: store, shortNames: kind.ShortNames}
	if !kind.hasStatus() {
		return nil
	}
	// The subresource shares the storage with the main resource, which alone destroys it.
	statusStore := *store
	statusStore.CreateStrategy, statusStore.DeleteStrategy = nil, nil
	statusStore.UpdateStrategy, statusStore.ResetFieldsStrategy = statusStrategy[T]{write}, statusStrategy[T]{write}
	into[kind.Resource.Resource+"/status"] = &StatusREST{store: &statusStore}
	return nil
}

// StatusREST is the status subresource of a kind: it can be read, replaced and patched.
type StatusREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &StatusREST{}
	_ rest.ResetFieldsStrategy = &StatusREST{}
	_ rest.TableConvertor      = &StatusREST{}
)

// New returns an empty object of the kind.
func (r *StatusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the main resource destroys the storage that both share.
func (r *StatusREST) Destroy() {}

// Get returns the whole object.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update changes the status of an object that exists; it never creates one.
func (r *StatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *StatusREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}
