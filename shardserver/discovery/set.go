// Package discovery serves the discovery of a logical cluster: /api, /apis and the paths below them up to the resource list
// of a version, aggregated and unaggregated.
//
// The API set of a logical cluster is the built-in resources that are visible there and the definitions that it has or binds.
// It is computed for every request. Documents are cached by the hash of the API set, in a bounded cache that all logical
// clusters share; there is no state per logical cluster. Package openapi serves the schemas of the API sets. Serving resources
// does not belong here.
package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	shared "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// APISet is what a logical cluster serves, as far as its discovery and OpenAPI documents depend on it.
type APISet struct {
	// Compiled is the discovery of the built-in resources.
	Compiled *Compiled
	// Hidden are the built-in resources that are not visible in the logical cluster, ordered.
	Hidden []schema.GroupResource
	// Definitions are the served ones, bound or the logical cluster's own, ordered by "<resource>.<group>". Their resources
	// are unique, and no visible built-in resources.
	Definitions []Definition
}

// Definition is a served definition: established, and with a served version.
type Definition struct {
	// Content is the hash of everything in the definition that documents depend on.
	Content Hash
	// Terminating is set while the definition, or its binding, is being deleted with its objects.
	Terminating bool
	// ReadOnly is set for objects that are served by a virtual workspace.
	ReadOnly bool
	// Verbs are the verbs of the resource in a view; empty for all.
	Verbs []string
	// Subresources are its custom subresources, ordered by name.
	Subresources []Subresource
	// Object is shared with the watch cache: callers must neither modify nor retain it.
	Object *apiextensions.CustomResourceDefinition
}

// IsHidden returns whether a built-in resource is not visible. Its subresources are not visible either.
func (s *APISet) IsHidden(resource schema.GroupResource) bool {
	_, found := slices.BinarySearchFunc(s.Hidden, resource, compareResources)
	return found
}

// DefinitionsOf returns the definitions that serve a version of a group.
func (s *APISet) DefinitionsOf(version schema.GroupVersion) []Definition {
	var serving []Definition
	for _, definition := range s.Definitions {
		if definition.Object.Spec.Group == version.Group && apiextensions.HasServedCRDVersion(definition.Object, version.Version) {
			serving = append(serving, definition)
		}
	}
	return serving
}

// Serves returns whether the API set has any resource in a version of a group.
func (s *APISet) Serves(version schema.GroupVersion) bool {
	for _, listed := range s.Compiled.listResources(version) {
		if !strings.Contains(listed.Name, "/") && !s.IsHidden(schema.GroupResource{Group: version.Group, Resource: listed.Name}) {
			return true
		}
	}
	return len(s.DefinitionsOf(version)) > 0
}

// VersionsOf returns the built-in versions of a group, visible or not.
func (s *APISet) VersionsOf(name string) []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, compiled := range s.Compiled.groups {
		for _, version := range compiled.versions {
			if compiled.name == name {
				versions = append(versions, schema.GroupVersion{Group: name, Version: version.name})
			}
		}
	}
	return versions
}

// HiddenKinds returns the built-in kinds of a version that are not visible.
func (s *APISet) HiddenKinds(version schema.GroupVersion) []string {
	var kinds []string
	for _, listed := range s.Compiled.listResources(version) {
		if s.IsHidden(schema.GroupResource{Group: version.Group, Resource: listed.Name}) {
			kinds = append(kinds, listed.Kind)
		}
	}
	return kinds
}

// Key returns the cache key of the discovery documents of the API set.
func (s *APISet) Key() Hash {
	hash := sha256.New()
	s.Compiled.writeRestriction(hash, allGroups)
	writeHidden(hash, s.Hidden)
	for _, definition := range s.Definitions {
		fmt.Fprintf(hash, "%x %t %t %q %q\n", definition.Content, definition.Terminating, definition.ReadOnly, definition.Verbs, definition.Subresources)
	}
	return Hash(hash.Sum(nil))
}

// SchemaKey returns the cache key of the schemas of the API set.
func (s *APISet) SchemaKey() Hash {
	hash := sha256.New()
	s.Compiled.writeRestriction(hash, allGroups)
	writeHidden(hash, s.Hidden)
	writeContents(hash, s.Definitions)
	return Hash(hash.Sum(nil))
}

// VersionKey returns the cache key of the schemas of one version of a group. plain is true if the version has exactly
// the built-in schemas.
func (s *APISet) VersionKey(version schema.GroupVersion) (key Hash, plain bool) {
	serving := s.DefinitionsOf(version)
	var hidden []schema.GroupResource
	for _, resource := range s.Hidden {
		if resource.Group == version.Group {
			hidden = append(hidden, resource)
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n", version)
	s.Compiled.writeRestriction(hash, func(group string) bool { return group == version.Group })
	writeHidden(hash, hidden)
	writeContents(hash, serving)
	return Hash(hash.Sum(nil)), len(hidden) == 0 && len(serving) == 0 && !s.Compiled.IsView()
}

// Resolver resolves requests to the API sets of their logical clusters.
type Resolver struct {
	compiled        *Source
	registry        *storage.Registry
	definitions     *storage.Reader[*apiextensions.CustomResourceDefinition]
	bound           func(context.Context) ([]CandidateDefinition, error)
	overlapsBuiltIn func(schema.GroupResource) bool
	hasher          *hasher
}

// CandidateDefinition is a definition, bound or the logical cluster's own.
type CandidateDefinition struct {
	Object                *apiextensions.CustomResourceDefinition
	Terminating, ReadOnly bool
	// Subresources are its custom subresources, ordered by name.
	Subresources []Subresource
}

// NewResolver returns a resolver. The registry has the definitions and the visibility of resources. hashOf returns the hash of
// the specification of a definition, bound what the context's logical cluster binds, and overlapsBuiltIn whether definitions
// of a resource are never served.
func NewResolver(compiled *Source, registry *storage.Registry, hashOf func(*apiextensions.CustomResourceDefinition) (shared.Hash, error),
	bound func(context.Context) ([]CandidateDefinition, error), overlapsBuiltIn func(schema.GroupResource) bool,
) *Resolver {
	return &Resolver{
		compiled:        compiled,
		registry:        registry,
		definitions:     storage.NewReader[*apiextensions.CustomResourceDefinition](registry, shared.Definitions),
		bound:           bound,
		overlapsBuiltIn: overlapsBuiltIn,
		hasher:          newHasher(hashOf),
	}
}

// Resolve returns the API set of the context's logical cluster. For the wildcard, and without a logical cluster, it has the
// built-in resources.
func (r *Resolver) Resolve(ctx context.Context) (*APISet, error) {
	compiled, err := r.compiled.Load(ctx)
	if err != nil {
		return nil, err
	}
	bound, err := r.bound(ctx) // first: built-in resources may be visible because they are bound
	if err != nil {
		return nil, fmt.Errorf("listing the bound resources of the logical cluster: %w", err)
	}
	set := &APISet{Compiled: compiled}
	for _, resource := range compiled.resources {
		if !r.registry.IsVisible(ctx, resource) {
			set.Hidden = append(set.Hidden, resource)
		}
	}
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() || cluster == logicalcluster.BoundCRDs {
		return set, nil // definitions of system:bound-crds are served where they are bound
	}
	all, err := r.definitions.ListLatest(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the definitions of the logical cluster: %w", err)
	}
	return set, r.hasher.addDefinitions(ctx, set, append(bound, r.ownDefinitions(all)...))
}

// ownDefinitions returns the logical cluster's own definitions, except those that are never served.
func (r *Resolver) ownDefinitions(all []*apiextensions.CustomResourceDefinition) []CandidateDefinition {
	defined := make([]CandidateDefinition, 0, len(all))
	for _, object := range all {
		if r.overlapsBuiltIn(resourceOf(object)) {
			continue
		}
		defined = append(defined, CandidateDefinition{Object: object, Terminating: apiextensions.IsCRDConditionTrue(object, apiextensions.Terminating)})
	}
	return defined
}

// addDefinitions adds the served definitions to an API set. Of two for one resource it adds the first.
func (h *hasher) addDefinitions(ctx context.Context, set *APISet, all []CandidateDefinition) error {
	added := map[schema.GroupResource]bool{}
	for _, defined := range all {
		object := defined.Object
		resource := resourceOf(object)
		if !isServed(object) || added[resource] || (set.Compiled.hasResource(resource) && !set.IsHidden(resource)) {
			continue
		}
		added[resource] = true
		content, err := h.hash(ctx, object)
		if err != nil {
			return fmt.Errorf("hashing definition %q: %w", object.Name, err)
		}
		set.Definitions = append(set.Definitions, Definition{
			Content: content, Terminating: defined.Terminating, ReadOnly: defined.ReadOnly, Subresources: defined.Subresources, Object: object,
		})
	}
	slices.SortFunc(set.Definitions, func(a, b Definition) int {
		return cmp.Compare(resourceOf(a.Object).String(), resourceOf(b.Object).String())
	})
	return nil
}

func resourceOf(object *apiextensions.CustomResourceDefinition) schema.GroupResource {
	return schema.GroupResource{Group: object.Spec.Group, Resource: object.Spec.Names.Plural}
}

func isServed(object *apiextensions.CustomResourceDefinition) bool {
	return apiextensions.IsCRDConditionTrue(object, apiextensions.Established) &&
		slices.ContainsFunc(object.Spec.Versions, func(version apiextensions.CustomResourceDefinitionVersion) bool { return version.Served })
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
