package kro

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"
)

// schemasCacheSize bounds the cached schemas, which the graphs of all Templates share.
const schemasCacheSize = 128

// schemas resolves the schemas of kinds of the runtime cluster. The resolver of the compiler's library uses built-in kinds of its own version,
// and discovers a new CRD only after minutes. This one requests the hashes of the cluster's documents each time, and reads those that have
// changed. It implements resolver.SchemaResolver.
type schemas struct {
	discovery discovery.DiscoveryInterface
	cache     *lru.Cache // schemaKey to *spec.Schema
}

// schemaKey identifies a kind in a document.
type schemaKey struct {
	gvk schema.GroupVersionKind
	url string // contains a hash of the content
}

var _ resolver.SchemaResolver = &schemas{}

func newSchemas(d discovery.DiscoveryInterface) *schemas {
	return &schemas{discovery: d, cache: lru.New(schemasCacheSize)}
}

// unavailableError is an error of the runtime cluster, not of the Template.
type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// ResolveSchema implements resolver.SchemaResolver.
func (s *schemas) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	documents, err := s.discovery.OpenAPIV3().Paths()
	if err != nil {
		return nil, &unavailableError{fmt.Errorf("listing the schemas of the runtime cluster: %w", err)}
	}
	path := "apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "api/" + gvk.Version
	}
	document, found := documents[path]
	if !found {
		return nil, fmt.Errorf("%s: %w", gvk, resolver.ErrSchemaNotFound)
	}
	key := schemaKey{gvk, document.ServerRelativeURL()}
	if cached, found := s.cache.Get(key); found {
		return cached.(*spec.Schema), nil
	}
	resolved, err := (&resolver.ClientDiscoveryResolver{Discovery: s.discovery}).ResolveSchema(gvk)
	if err != nil && !isSchemaMissing(err) {
		return nil, &unavailableError{fmt.Errorf("reading the schema of %s: %w", gvk, err)}
	}
	if err != nil {
		return nil, err
	}
	s.cache.Add(key, resolved)
	return resolved, nil
}
