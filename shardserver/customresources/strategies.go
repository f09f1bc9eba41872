package customresources

import (
	"context"
	"slices"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/shardserver/customresources/stores"
)

// Schemas of exports can say what definitions cannot: that their resource has no group, and that names of objects may be
// all that a path can hold (contract 4.1). And kinds that Kubernetes has are printed as there (contract 8.8). The stock
// stores are put right for those.

// bend makes the stores of a content fit, if they have to. It is called before the content serves anything.
func (c *Content) bend(handler any, uid types.UID) error {
	printed := slices.ContainsFunc(c.spec.Versions, func(version apiextensionsinternal.CustomResourceDefinitionVersion) bool {
		return printedByKubernetes(c.kind(version.Name))
	})
	if c.spec.Group != "" && !c.anyPathNames && !printed {
		return nil
	}
	all, err := stores.Of(handler, uid)
	if err != nil {
		return err
	}
	for version, of := range all {
		if c.spec.Group == "" {
			if err := c.bendGroup(version, of); err != nil {
				return err
			}
		}
		if kind := c.kind(version); printedByKubernetes(kind) {
			of.Objects.TableConvertor = builtinColumns{of.Objects.TableConvertor, kind}
		}
		if c.anyPathNames {
			of.Objects.CreateStrategy = namingPathSegments{of.Objects.CreateStrategy}
		}
	}
	return nil
}

// kind returns the kind of the content in a version.
func (c *Content) kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.spec.Group, Version: version, Kind: c.names.Kind}
}

// namingPathSegments is a strategy with another rule for names.
type namingPathSegments struct{ rest.RESTCreateStrategy }

// Validate implements rest.RESTCreateStrategy.
func (s namingPathSegments) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
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
