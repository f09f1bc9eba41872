package virtual

import (
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
)

// NewAPI returns a handler that serves a fixed set of API groups the stock way: their resources, discovery in both
// forms, and OpenAPI v3. It is for virtual workspaces that show the same API to every owner; which objects they see is
// up to the storages, which find the owner in the context (From). One exists per virtual workspace and process.
//
// base is the configuration of the shard before it is completed; name tells the sets apart in metrics.
func NewAPI(base *genericapiserver.Config, name string, groups ...*genericapiserver.APIGroupInfo) (http.Handler, error) {
	config := *base
	// What belongs to the life of the process belongs to the shard's own server.
	config.PostStartHooks = nil
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.FlowControl, config.StorageObjectCountTracker = nil, nil
	config.EnableIndex, config.EnableProfiling, config.EnableMetrics, config.DebugSocketPath = false, false, false, ""
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	// Requests come out of the shard's chain already.
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	completed := config.Complete(nil)
	server, err := completed.New(name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the API of virtual workspace %q: %w", name, err)
	}
	if err := server.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("installing the API of virtual workspace %q: %w", name, err)
	}
	routes.OpenAPI{V3Config: completed.OpenAPIV3Config}.InstallV3(server.Handler.GoRestfulContainer, server.Handler.NonGoRestfulMux)
	return server.UnprotectedHandler(), nil
}
