package syncagent

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/view"
)

// endpointConnection is an endpoint with the watches that publications share.
type endpointConnection struct {
	*workspaces.Endpoint
	watches *watches
}

// rememberedEndpoints returns the stored URLs of all endpoints that an agent has ever used.
func rememberedEndpoints(c client.Client, config *options.Config) *workspaces.Remembered {
	return &workspaces.Remembered{Client: c, Key: client.ObjectKey{Namespace: config.Namespace, Name: "endpoints-" + config.AgentName}}
}

// knownEndpoints are all endpoints that the agent has ever used. An endpoint that the slice no longer lists may still serve objects, so a
// copy counts as an orphan only after that endpoint has been read.
type knownEndpoints struct {
	config *rest.Config

	mu    sync.Mutex
	byURL map[string]*endpointConnection
	// views are the syncer's views at the endpoints, by the URLs of the endpoints.
	views map[string]*endpointConnection
	// complete is true if no other endpoints exist: the slice is valid, and byURL contains its endpoints and those used before.
	complete bool
}

func newKnownEndpoints(config *rest.Config) *knownEndpoints {
	return &knownEndpoints{config: config, byURL: map[string]*endpointConnection{}, views: map[string]*endpointConnection{}}
}

// get returns the endpoint at a URL.
func (k *knownEndpoints) get(url string) (*endpointConnection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.byURL[url]; known != nil {
		return known, nil
	}
	connection, err := newEndpointConnection(k.config, url)
	if err == nil {
		k.byURL[url] = connection
	}
	return connection, err
}

// view returns the syncer's view at an endpoint, or nil if its URL can have none.
func (k *knownEndpoints) view(endpoint *endpointConnection) (*endpointConnection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.views[endpoint.URL]; known != nil {
		return known, nil
	}
	url, ok := view.URL(endpoint.URL)
	if !ok {
		return nil, nil
	}
	connection, err := newEndpointConnection(k.config, url)
	if err == nil {
		k.views[endpoint.URL] = connection
	}
	return connection, err
}

func newEndpointConnection(config *rest.Config, url string) (*endpointConnection, error) {
	endpoint, err := workspaces.NewEndpoint(config, url)
	if err != nil {
		return nil, err
	}
	metadata, err := endpoint.Metadata()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	return &endpointConnection{Endpoint: endpoint, watches: newWatches(metadata)}, nil
}

// evidence returns all known endpoints, and false if others may exist.
func (k *knownEndpoints) evidence() ([]*endpointConnection, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.byURL)), k.complete && len(k.byURL) > 0
}

func (k *knownEndpoints) setComplete(complete bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = complete
}
