package crdhandler

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

	"github.com/atoll-dev/atoll/shardserver/customresources/crdhandler/stores"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
)

// placeholderGroup is the group that objects of resources without a group are validated with. The upstream strategies
// reject objects whose apiVersion has no group.
const placeholderGroup = "core"

// strategy is the interface of upstream strategies.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// adaptGrouplessStores sets the validation of one version of a resource without a group.
func adaptGrouplessStores(crd *crdregistry.CompiledCRD, version string, store stores.Stores) error {
	kind := schema.GroupVersionKind{Group: placeholderGroup, Version: version, Kind: crd.Names.Kind}
	objects, status, err := newStrategies(crd, store.Objects.CreateStrategy, kind)
	if err != nil {
		return fmt.Errorf("validating version %s of %s: %w", version, crd.GroupResource(), err)
	}
	store.Objects.CreateStrategy = grouplessCreateStrategy{store.Objects.CreateStrategy, objects, kind}
	store.Objects.UpdateStrategy = grouplessUpdateStrategy{store.Objects.UpdateStrategy, objects, kind}
	if store.Status != nil {
		store.Status.CreateStrategy = store.Objects.CreateStrategy
		store.Status.UpdateStrategy = grouplessUpdateStrategy{store.Status.UpdateStrategy, status, kind}
	}
	return nil
}

// newStrategies returns the upstream strategies of a version, for objects and for their status, with another kind.
func newStrategies(crd *crdregistry.CompiledCRD, typer runtime.ObjectTyper, kind schema.GroupVersionKind) (objects strategy, status rest.RESTUpdateStrategy, err error) {
	definition := &apiextensionsinternal.CustomResourceDefinition{Spec: crd.Spec}
	crdValidation, err := apiextensionsinternal.GetSchemaForVersion(definition, kind.Version)
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
	props := crdValidation.OpenAPIV3Schema.DeepCopy()
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, nil, err
	}
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, nil, err
	}
	objectValidator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, nil, err
	}
	var statusValidator validation.SchemaValidator
	if statusProps, ok := props.Properties["status"]; ok && subresources.Status != nil {
		if statusValidator, _, err = validation.NewSchemaValidator(&statusProps); err != nil {
			return nil, nil, err
		}
	}
	strategy := customresource.NewStrategy(typer, crd.Resource.Namespaced, kind, objectValidator, statusValidator, structural, subresources.Status, subresources.Scale, nil)
	return strategy, customresource.NewStatusStrategy(strategy), nil
}

// grouplessCreateStrategy validates with another strategy.
type grouplessCreateStrategy struct {
	rest.RESTCreateStrategy
	validating rest.RESTCreateStrategy
	kind       schema.GroupVersionKind
}

// Validate implements rest.RESTCreateStrategy.
func (s grouplessCreateStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.validating.Validate(ctx, withPlaceholderGroup(obj, s.kind))
}

// grouplessUpdateStrategy validates with another strategy.
type grouplessUpdateStrategy struct {
	rest.RESTUpdateStrategy
	validating rest.RESTUpdateStrategy
	kind       schema.GroupVersionKind
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s grouplessUpdateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validating.ValidateUpdate(ctx, withPlaceholderGroup(obj, s.kind), withPlaceholderGroup(old, s.kind))
}

// withPlaceholderGroup returns a copy of an object with the placeholder group. An object with a wrong apiVersion is returned
// as it is, and fails validation.
func withPlaceholderGroup(obj runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok || object.GetAPIVersion() != kind.Version {
		return obj
	}
	copied := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	copied.Object["apiVersion"] = kind.GroupVersion().String()
	return copied
}
