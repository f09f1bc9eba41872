package customresources

import (
	"context"
	"fmt"
	"maps"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/shardserver/customresources/stores"
)

// The stock strategies accept no object whose apiVersion has no group. Objects of such resources are validated as ones of
// a group that stands for none, by strategies that are made for it.

const standInGroup = "core"

// strategy is what stock strategies are.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// bendGroup gives a version of a resource without a group strategies that validate it.
func (c *Content) bendGroup(version string, of stores.Stores) error {
	kind := schema.GroupVersionKind{Group: standInGroup, Version: version, Kind: c.names.Kind}
	objects, status, err := c.strategies(of.Objects.CreateStrategy, kind)
	if err != nil {
		return fmt.Errorf("validating version %s of %s: %w", version, c.GroupResource(), err)
	}
	of.Objects.CreateStrategy = grouplessCreation{of.Objects.CreateStrategy, objects, kind}
	of.Objects.UpdateStrategy = grouplessUpdate{of.Objects.UpdateStrategy, objects, kind}
	if of.Status != nil {
		of.Status.CreateStrategy = of.Objects.CreateStrategy
		of.Status.UpdateStrategy = grouplessUpdate{of.Status.UpdateStrategy, status, kind}
	}
	return nil
}

// strategies makes the stock strategies of a version, for its objects and for their status, for another kind.
func (c *Content) strategies(typer runtime.ObjectTyper, kind schema.GroupVersionKind) (objects strategy, status rest.RESTUpdateStrategy, err error) {
	definition := &apiextensionsinternal.CustomResourceDefinition{Spec: c.spec}
	described, err := apiextensionsinternal.GetSchemaForVersion(definition, kind.Version)
	if err != nil {
		return nil, nil, err
	}
	subresources, err := apiextensionsinternal.GetSubresourcesForVersion(definition, kind.Version)
	if err != nil {
		return nil, nil, err
	}
	if subresources == nil {
		subresources = &apiextensionsinternal.CustomResourceSubresources{}
	}
	props := described.OpenAPIV3Schema.DeepCopy()
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, nil, err
	}
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, nil, err
	}
	whole, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, nil, err
	}
	var part validation.SchemaValidator
	if of, ok := props.Properties["status"]; ok && subresources.Status != nil {
		if part, _, err = validation.NewSchemaValidator(&of); err != nil {
			return nil, nil, err
		}
	}
	made := customresource.NewStrategy(typer, c.resource.Namespaced, kind, whole, part, structural, subresources.Status, subresources.Scale, nil)
	return made, customresource.NewStatusStrategy(made), nil
}

// grouplessCreation is the strategy for creations but for who validates.
type grouplessCreation struct {
	rest.RESTCreateStrategy
	validating rest.RESTCreateStrategy
	kind       schema.GroupVersionKind
}

// Validate implements rest.RESTCreateStrategy.
func (s grouplessCreation) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.validating.Validate(ctx, grouped(obj, s.kind))
}

// grouplessUpdate is the strategy for updates but for who validates.
type grouplessUpdate struct {
	rest.RESTUpdateStrategy
	validating rest.RESTUpdateStrategy
	kind       schema.GroupVersionKind
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s grouplessUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validating.ValidateUpdate(ctx, grouped(obj, s.kind), grouped(old, s.kind))
}

// grouped returns what to validate for an object without a group: one of the group that stands for none. What does not
// say the right version stays as it is, and is found wrong.
func grouped(obj runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok || object.GetAPIVersion() != kind.Version {
		return obj
	}
	of := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	of.Object["apiVersion"] = kind.GroupVersion().String()
	return of
}
