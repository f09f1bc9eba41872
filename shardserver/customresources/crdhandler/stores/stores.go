// Package stores is an upstream shim: it returns the stores inside the upstream handler of custom resources, which has no
// parameter for their strategies and supports neither another validation of names nor resources without a group. It reads
// unexported fields by reflection, once, before the handler serves requests, and fails if a Kubernetes version has other
// fields.
//
// No other package may depend on the internals of the handler.
package stores

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// Stores are the stores of one version of a definition. The handler uses these stores, so changes take effect.
type Stores struct {
	Objects *genericregistry.Store
	// Status is nil without the status subresource.
	Status *genericregistry.Store
}

// Get returns the stores of a definition that the handler, a *apiserver.crdHandler of apiextensions-apiserver, has compiled,
// by version.
func Get(handler any, definition types.UID) (map[string]Stores, error) {
	storages, err := getStorages(handler, definition)
	if err != nil {
		return nil, fmt.Errorf("the stock handler of custom resources has unexpected internals: %w", err)
	}
	all := make(map[string]Stores, len(storages))
	for version, storage := range storages {
		stores := Stores{Objects: storage.CustomResource.Store}
		if storage.Status != nil {
			status, err := getFieldPointer[*genericregistry.Store](reflect.ValueOf(storage.Status), "store")
			if err != nil {
				return nil, fmt.Errorf("the stock storage of a status has unexpected internals: %w", err)
			}
			stores.Status = *status
		}
		all[version] = stores
	}
	return all, nil
}

// getStorages returns the storages of a definition by version.
func getStorages(handler any, definition types.UID) (map[string]customresource.CustomResourceStorage, error) {
	all, err := getFieldPointer[atomic.Value](reflect.ValueOf(handler), "customStorage")
	if err != nil {
		return nil, err
	}
	infos := reflect.ValueOf(all.Load())
	if infos.Kind() != reflect.Map || infos.Type().Key() != reflect.TypeFor[types.UID]() {
		return nil, fmt.Errorf("customStorage contains a %s", infos.Type())
	}
	info := infos.MapIndex(reflect.ValueOf(definition))
	if !info.IsValid() {
		return nil, fmt.Errorf("definition %q is not compiled", definition)
	}
	storages, err := getFieldPointer[map[string]customresource.CustomResourceStorage](info, "storages")
	if err != nil {
		return nil, err
	}
	return *storages, nil
}

// getFieldPointer returns a field of the struct that a pointer points to.
func getFieldPointer[T any](pointer reflect.Value, name string) (*T, error) {
	if pointer.Kind() != reflect.Pointer || pointer.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to a struct", pointer.Type())
	}
	value := pointer.Elem().FieldByName(name)
	if !value.IsValid() || value.Type() != reflect.TypeFor[T]() {
		return nil, fmt.Errorf("%s has no field %s of type %s", pointer.Type(), name, reflect.TypeFor[T]())
	}
	return (*T)(value.Addr().UnsafePointer()), nil
}
