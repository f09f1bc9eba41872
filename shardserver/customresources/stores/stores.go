// Package stores reaches the stores inside the stock handler of custom resources, whose strategies are made there and
// cannot be given: it has no parameter for how names are validated, and takes it for granted that a resource has a
// group. The package waits for such a parameter. Until then it reads unexported fields, once, before the handler serves
// anything; a Kubernetes version that has other fields makes it fail, not guess.
//
// Nothing else may depend on what the handler is made of.
package stores

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// Stores are those of one version of a definition. Changes of one show in what the handler serves.
type Stores struct {
	Objects *genericregistry.Store
	// Status is nil without that subresource.
	Status *genericregistry.Store
}

// Of returns the stores of a definition that the handler, a *apiserver.crdHandler of apiextensions-apiserver, has
// compiled, by version.
func Of(handler any, definition types.UID) (map[string]Stores, error) {
	storages, err := storagesOf(handler, definition)
	if err != nil {
		return nil, fmt.Errorf("the stock handler of custom resources is not made as expected: %w", err)
	}
	all := make(map[string]Stores, len(storages))
	for version, storage := range storages {
		stores := Stores{Objects: storage.CustomResource.Store}
		if storage.Status != nil {
			status, err := field[*genericregistry.Store](reflect.ValueOf(storage.Status), "store")
			if err != nil {
				return nil, fmt.Errorf("the stock storage of a status is not made as expected: %w", err)
			}
			stores.Status = *status
		}
		all[version] = stores
	}
	return all, nil
}

// storagesOf returns the storages of a definition by version.
func storagesOf(handler any, definition types.UID) (map[string]customresource.CustomResourceStorage, error) {
	all, err := field[atomic.Value](reflect.ValueOf(handler), "customStorage")
	if err != nil {
		return nil, err
	}
	infos := reflect.ValueOf(all.Load())
	if infos.Kind() != reflect.Map || infos.Type().Key() != reflect.TypeFor[types.UID]() {
		return nil, fmt.Errorf("what it compiled is %s", infos.Type())
	}
	info := infos.MapIndex(reflect.ValueOf(definition))
	if !info.IsValid() {
		return nil, fmt.Errorf("definition %q is not compiled", definition)
	}
	storages, err := field[map[string]customresource.CustomResourceStorage](info, "storages")
	if err != nil {
		return nil, err
	}
	return *storages, nil
}

// field returns a field of the struct that a pointer points to.
func field[T any](pointer reflect.Value, name string) (*T, error) {
	if pointer.Kind() != reflect.Pointer || pointer.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to a struct", pointer.Type())
	}
	found := pointer.Elem().FieldByName(name)
	if !found.IsValid() || found.Type() != reflect.TypeFor[T]() {
		return nil, fmt.Errorf("%s has no field %s of type %s", pointer.Type(), name, reflect.TypeFor[T]())
	}
	return (*T)(found.Addr().UnsafePointer()), nil
}
