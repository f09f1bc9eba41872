package crdhandler

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdhandler/stores"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
)

// adaptStores changes the upstream stores of a compiled CRD where an APIResourceSchema allows what a definition does not: a
// resource without a group, and object names that are any path segment (contract 4.1). Kinds of Kubernetes are printed
// with Kubernetes' own columns (contract 8.8), and tables of all kinds end with their request. It must be called before the handler
// serves requests. rowBytes bounds the texts of a row.
func adaptStores(crd *crdregistry.CompiledCRD, handler any, uid types.UID, rowBytes int) error {
	all, err := stores.Get(handler, uid)
	if err != nil {
		return err
	}
	for version, store := range all {
		if crd.Spec.Group == "" {
			if err := adaptGrouplessStores(crd, version, store); err != nil {
				return err
			}
		}
		store.Objects.TableConvertor = boundedTableConvertor{store.Objects.TableConvertor, rowBytes}
		if kind := newKind(crd, version); hasBuiltInPrinter(kind) {
			store.Objects.TableConvertor = builtInTableConvertor{store.Objects.TableConvertor, kind}
		}
		if crd.PathSegmentNames {
			store.Objects.CreateStrategy = pathSegmentNameStrategy{store.Objects.CreateStrategy}
		}
	}
	return nil
}

func newKind(crd *crdregistry.CompiledCRD, version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Names.Kind}
}

// pathSegmentNameStrategy validates object names as path segments.
type pathSegmentNameStrategy struct{ rest.RESTCreateStrategy }

// Validate implements rest.RESTCreateStrategy.
func (s pathSegmentNameStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := s.RESTCreateStrategy.Validate(ctx, obj)
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return errs
	}
	metadata := field.NewPath("metadata")
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool {
		return err.Type == field.ErrorTypeInvalid && (err.Field == metadata.Child("name").String() || err.Field == metadata.Child("generateName").String())
	})
	for _, message := range content.IsPathSegmentName(object.GetName()) {
		errs = append(errs, field.Invalid(metadata.Child("name"), object.GetName(), message))
	}
	return errs
}
