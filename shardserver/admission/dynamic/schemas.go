package dynamic

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// maxModels bounds the number of different types in the caches.
const maxModels = 256

// Schemas resolves the types of the objects that logical clusters serve: those compiled in, and those of definitions,
// own or bound, which all logical clusters with equal definitions share. A model is built when a policy first needs it: to apply a
// configuration to an object, or to check expressions.
type Schemas struct {
	registry *storage.Registry
	custom   definitions
	scheme   *runtime.Scheme
	openAPI  *common.OpenAPIV3Config

	// compiled caches models of compiled-in kinds, content those of definitions by content. seen caches the content
	// hash of a definition at one resource version.
	compiled  *lruCache[schema.GroupVersionKind, func() model]
	byContent *lruCache[contentKey, func() model]
	hashes    *lruCache[definitionVersion, contentKey]
}

type definitionVersion struct {
	revision
	version string
}

// model describes a kind, or holds the error of building it.
type model struct {
	schemas   map[string]*spec.Schema
	converter func() (managedfields.TypeConverter, error)
	err       error
}

// NewSchemas returns the schemas of the registry's resources, and of those that are bound; nil means that none are.
func NewSchemas(registry *storage.Registry, bound *bindings.Index, scheme *runtime.Scheme, openAPI *common.OpenAPIV3Config) *Schemas {
	return &Schemas{
		registry: registry, custom: newDefinitions(registry, bound), scheme: scheme, openAPI: openAPI,
		compiled:  newLRUCache[schema.GroupVersionKind, func() model](maxModels),
		byContent: newLRUCache[contentKey, func() model](maxModels),
		hashes:    newLRUCache[definitionVersion, contentKey](4 * maxModels),
	}
}

// Resolve returns the schema of a kind that the context's logical cluster serves, with all references resolved, or
// resolver.ErrSchemaNotFound.
func (s *Schemas) Resolve(ctx context.Context, kind schema.GroupVersionKind) (*spec.Schema, error) {
	described, err := s.model(ctx, kind)
	if err != nil {
		return nil, err
	}
	for name, candidate := range described.schemas {
		if describes(candidate, kind) {
			return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
				found, ok := described.schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
				return found, ok
			}, name)
		}
	}
	return nil, fmt.Errorf("%v: %w", kind, resolver.ErrSchemaNotFound)
}

// describes reports whether a schema is that of a kind.
func describes(candidate *spec.Schema, kind schema.GroupVersionKind) bool {
	kinds, _ := candidate.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, one := range kinds {
		if named, ok := one.(map[string]any); ok && named["group"] == kind.Group && named["version"] == kind.Version && named["kind"] == kind.Kind {
			return true
		}
	}
	return false
}

func (s *Schemas) model(ctx context.Context, kind schema.GroupVersionKind) (model, error) {
	resource, err := s.registry.ResolveKind(ctx, kind.GroupKind())
	if err != nil {
		return model{}, err
	}
	if resource == nil {
		return model{}, fmt.Errorf("%v: %w", kind, resolver.ErrSchemaNotFound)
	}
	if compiled, err := s.registry.Get(resource.GVR.GroupResource()); err == nil && compiled == resource {
		if resource.Kind.Version != kind.Version {
			return model{}, fmt.Errorf("%v: %w", kind, resolver.ErrSchemaNotFound)
		}
		described := s.compiled.getOrAdd(kind, func() func() model {
			return sync.OnceValue(func() model { return newModel(s.describeCompiled(kind)) })
		})()
		return described, described.err
	}
	definition, err := s.custom.get(ctx, resource.GVR.GroupResource())
	if err != nil {
		return model{}, err
	}
	if definition == nil || !isVersionServed(definition, kind.Version) {
		return model{}, fmt.Errorf("%v: %w", kind, resolver.ErrSchemaNotFound)
	}
	content, err := s.contentHash(definition, kind.Version)
	if err != nil {
		return model{}, err
	}
	described := s.byContent.getOrAdd(content, func() func() model {
		return sync.OnceValue(func() model { return newModel(describeCustom(definition, kind.Version)) })
	})()
	return described, described.err
}

func newModel(schemas map[string]*spec.Schema, err error) model {
	return model{schemas: schemas, err: err, converter: sync.OnceValues(func() (managedfields.TypeConverter, error) {
		return managedfields.NewTypeConverter(schemas, false)
	})}
}

func (s *Schemas) describeCompiled(kind schema.GroupVersionKind) (map[string]*spec.Schema, error) {
	sample, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	return builder3.BuildOpenAPIDefinitionsForResources(s.openAPI, openapiutil.GetCanonicalTypeName(sample))
}

func describeCustom(definition *apiextensions.CustomResourceDefinition, version string) (map[string]*spec.Schema, error) {
	converted, err := definitionV1(definition)
	if err != nil {
		return nil, err
	}
	document, err := builder.BuildOpenAPIV3(converted, version, builder.Options{})
	if err != nil {
		return nil, fmt.Errorf("describing version %q of the definition %q: %w", version, definition.Name, err)
	}
	return document.Components.Schemas, nil
}

func (s *Schemas) contentHash(definition *apiextensions.CustomResourceDefinition, version string) (contentKey, error) {
	state := definitionVersion{revision{definition.UID, definition.ResourceVersion}, version}
	if known, ok := s.hashes.get(state); ok {
		return known, nil
	}
	encoded, err := json.Marshal([]any{definition.Spec, definition.Status.AcceptedNames, version})
	if err != nil {
		return contentKey{}, fmt.Errorf("reading the definition %q: %w", definition.Name, err)
	}
	content := contentKey(sha256.Sum256(encoded))
	s.hashes.entries.Add(state, content)
	return content, nil
}

// typeConverters provides type converters for the objects of one request.
type typeConverters struct {
	// ctx is that of the request, because upstream's interface has no context parameter.
	ctx     context.Context
	schemas *Schemas
}

// GetTypeConverter implements patch.TypeConverterManager. Upstream requests a converter for each mutation, but few
// mutations use it, so the model is built at the first use of the converter.
func (t typeConverters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	return lazyConverter{func() (managedfields.TypeConverter, error) {
		described, err := t.schemas.model(t.ctx, kind)
		if errors.Is(err, resolver.ErrSchemaNotFound) {
			return nil, fmt.Errorf("resource kind %v not found", kind)
		}
		if err != nil {
			return nil, err
		}
		return described.converter()
	}}
}

// Run implements patch.TypeConverterManager. There is nothing to run.
func (typeConverters) Run(context.Context) {}
