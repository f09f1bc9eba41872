package dynamic

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// definitions reads the definitions of custom resources.
type definitions struct {
	reader *storage.Reader[*apiextensions.CustomResourceDefinition]
	// bound resolves resources that are bound from an export; nil means none.
	bound *bindings.Index
}

func newDefinitions(registry *storage.Registry, bound *bindings.Index) definitions {
	return definitions{storage.NewReader[*apiextensions.CustomResourceDefinition](registry, apiextensions.Resource("customresourcedefinitions")), bound}
}

// get returns the definition of a resource in the context's logical cluster, or nil if there is none. That of a bound resource is the one of
// its binding, which the shard of the binding has, wherever its export is.
func (d definitions) get(ctx context.Context, resource schema.GroupResource) (*apiextensions.CustomResourceDefinition, error) {
	name, read := resource.String(), d.reader.Get
	if d.bound != nil {
		if bound, ok := d.bound.Get(ctx, resource); ok {
			ctx, name, read = logicalcluster.With(ctx, logicalcluster.BoundCRDs), string(bound.SchemaUID), d.getBound
		}
	}
	definition, err := read(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", resource, err)
	}
	return definition, nil
}

// getBound reads a definition of system:bound-crds. One that a request is served by may be newer than the watch cache.
func (d definitions) getBound(ctx context.Context, namespace, name string) (*apiextensions.CustomResourceDefinition, error) {
	definition, err := d.reader.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return d.reader.GetLatest(ctx, namespace, name)
	}
	return definition, err
}

// isServed reports whether a resource is served in a version.
func (d definitions) isServed(ctx context.Context, resource schema.GroupResource, version string) (bool, error) {
	definition, err := d.get(ctx, resource)
	if err != nil || definition == nil {
		return false, err
	}
	return isVersionServed(definition, version), nil
}

func isVersionServed(definition *apiextensions.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(definition.Spec.Versions, func(one apiextensions.CustomResourceDefinitionVersion) bool {
		return one.Name == version && one.Served
	})
}

// definitionV1 returns a converted copy that shares nothing with the watch cache.
func definitionV1(definition *apiextensions.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	converted := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(definition.DeepCopy(), converted, nil); err != nil {
		return nil, fmt.Errorf("converting the definition %q: %w", definition.Name, err)
	}
	return converted, nil
}
