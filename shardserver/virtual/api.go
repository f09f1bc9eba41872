package virtual

import (
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
)

// Description is what discovery and tables show of a resource of the shard. The storage of a virtual workspace that serves
// objects of the resource embeds it, and is described as the resource is in logical clusters, except for its verbs.
type Description interface {
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.StorageVersionProvider
	rest.TableConvertor
}

// NewAPI returns a generic API server handler for a fixed set of API groups: their resources, both forms of discovery,
// and OpenAPI v3. It is for virtual workspaces with the same API for every owner; their storages read the owner from the
// context (From) and select its objects. There is one per virtual workspace and process.
//
// base is the configuration of the shard before completion; name distinguishes the API servers in metrics.
func NewAPI(base *genericapiserver.Config, name string, groups ...*genericapiserver.APIGroupInfo) (http.Handler, error) {
	config := *base
	// Hooks, health checks, flow control and debugging endpoints belong to the shard's own server.
	config.PostStartHooks = nil
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.FlowControl, config.StorageObjectCountTracker = nil, nil
	config.EnableIndex, config.EnableProfiling, config.EnableMetrics, config.DebugSocketPath = false, false, false, ""
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	// Requests have passed the handler chain of the shard.
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	completed := config.Complete(nil)
	server, err := completed.New(name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the API of virtual workspace %q: %w", name, err)
	}
	if err := server.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("installing the API of virtual workspace %q: %w", name, err)
	}
	// As in kcp, /api lists v1 although it has no resources.
	core := discovery.NewLegacyRootAPIHandler(completed.DiscoveryAddresses, completed.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
	server.Handler.GoRestfulContainer.Add(core.WebService())
	routes.OpenAPI{V3Config: completed.OpenAPIV3Config}.InstallV3(server.Handler.GoRestfulContainer, server.Handler.NonGoRestfulMux)
	return server.UnprotectedHandler(), nil
}
