// Package discovery answers what a logical cluster serves: /api, /apis and what lies below them up to the list of a
// version's resources, in the aggregated and the unaggregated form.
//
// A logical cluster's API set is the resources compiled in that it shows and the content of its definitions. It is
// computed for every request; documents are made of it and kept by its hash, in a bounded cache that all logical
// clusters share (wall W5). Nothing is kept because a logical cluster exists (wall W2). Schemas are package openapi's
// part, which builds on the sets of this package. Serving resources is not done here.
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

// Set is what a logical cluster serves, as far as documents about its API depend on it.
type Set struct {
	// Compiled are the documents about what is compiled in, wherever it is shown.
	Compiled *Compiled
	// Hidden are the resources compiled in that the logical cluster does not show, ordered.
	Hidden []schema.GroupResource
	// Definitions are those in force, bound or the cluster's own, ordered by "<resource>.<group>". None brings a resource
	// that is compiled in and shown, and no two the same.
	Definitions []Definition
}

// Definition is one definition in force: established, and with a version that is served.
type Definition struct {
	// Content is the hash of all that documents about its resource are made of, but for Terminating.
	Content Hash
	// Terminating tells that the definition, or what binds it, is being deleted with its objects.
	Terminating bool
	// ReadOnly tells that objects are not stored here: a virtual workspace shows them.
	ReadOnly bool
	// Object is shared with the watch cache: it must be neither changed nor kept.
	Object *apiextensions.CustomResourceDefinition
}

// Hides tells whether a resource is compiled in and not shown. Subresources go with their resource.
func (s *Set) Hides(resource schema.GroupResource) bool {
	_, found := slices.BinarySearchFunc(s.Hidden, resource, compareResources)
	return found
}

// Serving returns the definitions that serve a version of a group.
func (s *Set) Serving(version schema.GroupVersion) []Definition {
	var serving []Definition
	for _, definition := range s.Definitions {
		if definition.Object.Spec.Group == version.Group && apiextensions.HasServedCRDVersion(definition.Object, version.Version) {
			serving = append(serving, definition)
		}
	}
	return serving
}

// Serves tells whether the set has any resource in a version of a group.
func (s *Set) Serves(version schema.GroupVersion) bool {
	for _, listed := range s.Compiled.listed(version) {
		if !strings.Contains(listed.Name, "/") && !s.Hides(schema.GroupResource{Group: version.Group, Resource: listed.Name}) {
			return true
		}
	}
	return len(s.Serving(version)) > 0
}

// VersionsOf returns the versions of a group that are compiled in, shown or not.
func (s *Set) VersionsOf(name string) []schema.GroupVersion {
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

// HiddenKinds returns the kinds of a version that are compiled in and not shown.
func (s *Set) HiddenKinds(version schema.GroupVersion) []string {
	var kinds []string
	for _, listed := range s.Compiled.listed(version) {
		if s.Hides(schema.GroupResource{Group: version.Group, Resource: listed.Name}) {
			kinds = append(kinds, listed.Kind)
		}
	}
	return kinds
}

// Key identifies all documents of discovery that are made of the set.
func (s *Set) Key() Hash {
	hash := sha256.New()
	s.Compiled.writeOnly(hash, everyGroup)
	writeHidden(hash, s.Hidden)
	for _, definition := range s.Definitions {
		fmt.Fprintf(hash, "%x %t %t\n", definition.Content, definition.Terminating, definition.ReadOnly)
	}
	return Hash(hash.Sum(nil))
}

// SchemaKey identifies all documents about schemas that are made of the set.
func (s *Set) SchemaKey() Hash {
	hash := sha256.New()
	s.Compiled.writeOnly(hash, everyGroup)
	writeHidden(hash, s.Hidden)
	writeContents(hash, s.Definitions)
	return Hash(hash.Sum(nil))
}

// VersionKey identifies the document about the schemas of one version of a group. Plain tells that only what is
// compiled in makes it, and all of it.
func (s *Set) VersionKey(version schema.GroupVersion) (key Hash, plain bool) {
	serving := s.Serving(version)
	var hidden []schema.GroupResource
	for _, resource := range s.Hidden {
		if resource.Group == version.Group {
			hidden = append(hidden, resource)
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n", version)
	s.Compiled.writeOnly(hash, func(group string) bool { return group == version.Group })
	writeHidden(hash, hidden)
	writeContents(hash, serving)
	return Hash(hash.Sum(nil)), len(hidden) == 0 && len(serving) == 0 && !s.Compiled.IsView()
}

// Sets finds the API sets of logical clusters.
type Sets struct {
	compiled    *Source
	registry    *storage.Registry
	definitions *storage.Reader[*apiextensions.CustomResourceDefinition]
	bound       func(context.Context) ([]Defined, error)
	barred      func(schema.GroupResource) bool
	hashes      *hashes
}

// Defined is a resource by its definition, bound or the cluster's own.
type Defined struct {
	Object                *apiextensions.CustomResourceDefinition
	Terminating, ReadOnly bool
}

// NewSets returns the API sets of the logical clusters whose definitions and rules of visibility the registry knows.
// What the context's logical cluster binds, the hash of a definition's specification, and whether definitions of a resource
// are never served, are asked for at every request.
func NewSets(compiled *Source, registry *storage.Registry, hashOf func(*apiextensions.CustomResourceDefinition) (shared.Hash, error),
	bound func(context.Context) ([]Defined, error), barred func(schema.GroupResource) bool,
) *Sets {
	return &Sets{
		compiled:    compiled,
		registry:    registry,
		definitions: storage.NewReader[*apiextensions.CustomResourceDefinition](registry, shared.Definitions),
		bound:       bound,
		barred:      barred,
		hashes:      newHashes(hashOf),
	}
}

// Of returns the API set of the context's logical cluster. Requests over all logical clusters, and outside of any, see
// what is compiled in.
func (s *Sets) Of(ctx context.Context) (*Set, error) {
	compiled, err := s.compiled.Read(ctx)
	if err != nil {
		return nil, err
	}
	bound, err := s.bound(ctx) // first: what is compiled in may be shown because it is bound
	if err != nil {
		return nil, fmt.Errorf("finding what the logical cluster binds: %w", err)
	}
	set := &Set{Compiled: compiled}
	for _, resource := range compiled.resources {
		if !s.registry.Shows(ctx, resource) {
			set.Hidden = append(set.Hidden, resource)
		}
	}
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() || cluster == logicalcluster.BoundCRDs {
		return set, nil // the definitions of system:bound-crds are for wherever they are bound
	}
	all, err := s.definitions.ListLatest(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the definitions of the logical cluster: %w", err)
	}
	return set, s.hashes.add(ctx, set, append(bound, s.own(all)...))
}

// own returns the cluster's own definitions, but for those that are never served.
func (s *Sets) own(all []*apiextensions.CustomResourceDefinition) []Defined {
	defined := make([]Defined, 0, len(all))
	for _, object := range all {
		if s.barred(resourceOf(object)) {
			continue
		}
		defined = append(defined, Defined{Object: object, Terminating: apiextensions.IsCRDConditionTrue(object, apiextensions.Terminating)})
	}
	return defined
}

// add puts the definitions in force into a set. Of two with one resource, the first counts.
func (h *hashes) add(ctx context.Context, set *Set, all []Defined) error {
	taken := map[schema.GroupResource]bool{}
	for _, defined := range all {
		object := defined.Object
		resource := resourceOf(object)
		if !inForce(object) || taken[resource] || (set.Compiled.has(resource) && !set.Hides(resource)) {
			continue
		}
		taken[resource] = true
		content, err := h.of(ctx, object)
		if err != nil {
			return fmt.Errorf("hashing definition %q: %w", object.Name, err)
		}
		set.Definitions = append(set.Definitions, Definition{
			Content: content, Terminating: defined.Terminating, ReadOnly: defined.ReadOnly, Object: object,
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

func inForce(object *apiextensions.CustomResourceDefinition) bool {
	return apiextensions.IsCRDConditionTrue(object, apiextensions.Established) &&
		slices.ContainsFunc(object.Spec.Versions, func(version apiextensions.CustomResourceDefinitionVersion) bool { return version.Served })
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
