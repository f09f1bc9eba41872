package shardserver

import (
	"context"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
	"github.com/atoll-dev/atoll/shardserver/openapi"
)

// withDocuments serves documents about the API of the request's logical cluster, which are made of what the handler
// below tells about what is compiled in, and of definitions.
func (c *Config) withDocuments(handler http.Handler, generic *genericapiserver.Config) http.Handler {
	compiled := discovery.NewSource(handler)
	sets := discovery.NewSets(compiled, c.registry, c.shared.HashOf, c.boundDefinitions, c.definitions.Barred)
	c.discovery = discovery.With(handler, sets, generic.DiscoveryAddresses, generic.Serializer)
	c.openapi = openapi.With(c.discovery, sets, compiled, func() *spec.Swagger { return c.server.StaticOpenAPISpec }, generic.Serializer)
	return c.openapi
}

// boundDefinitions returns what the context's logical cluster binds as discovery takes it.
func (c *Config) boundDefinitions(ctx context.Context) ([]discovery.Defined, error) {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.IsWildcard() {
		return nil, nil
	}
	served, err := c.definitions.Bound(ctx)
	if err != nil {
		return nil, err
	}
	bound := make([]discovery.Defined, 0, len(served))
	for _, b := range served {
		bound = append(bound, discovery.Defined{Object: b.Definition, Terminating: b.Terminating, ReadOnly: b.Virtual})
	}
	return bound, nil
}

// DocumentStats are numbers about the documents about APIs that the server keeps.
type DocumentStats struct{ Discovery, OpenAPIv2, OpenAPIv3 documents.Stats }

// DocumentStats returns the numbers of this moment.
func (s *Server) DocumentStats() DocumentStats {
	v2, v3 := s.config.openapi.Stats()
	return DocumentStats{Discovery: s.config.discovery.Stats(), OpenAPIv2: v2, OpenAPIv3: v3}
}
