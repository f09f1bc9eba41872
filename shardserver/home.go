package shardserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/shardserver/tenancy/home"
)

// homeAuthorizer lets users ask for their home workspaces, if there are any.
func (c *Config) homeAuthorizer(delegate authorizer.Authorizer) authorizer.Authorizer {
	if !c.options.Home.Enabled {
		return delegate
	}
	return home.Authorizer(delegate)
}

// withHome answers who asks for their home workspace.
func (c *Config) withHome(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	if !c.options.Home.Enabled {
		return handler
	}
	return home.With(handler, home.Config{
		Registry:   c.registry,
		Client:     c.clients.Typed,
		Authorizer: c.authorizer,
		Types:      c.types,
		ShardName:  c.options.Shard.Name,
		Serializer: serializer,
	})
}
