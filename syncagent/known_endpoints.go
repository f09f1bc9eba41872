package syncagent

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/syncagent/endpoints"
)

// endpointConnection is an endpoint with the watches that publications share.
type endpointConnection struct {
	*endpoints.Endpoint
	watches *watches
}

// knownEndpoints are all endpoints that the slice has listed since the agent started. One that it no longer lists may still have
// objects, and has to be asked before a copy is deleted as an orphan.
type knownEndpoints struct {
	config *rest.Config

	mu    sync.Mutex
	byURL map[string]*endpointConnection
}

func newKnownEndpoints(config *rest.Config) *knownEndpoints {
	return &knownEndpoints{config: config, byURL: map[string]*endpointConnection{}}
}

// get returns the endpoint at a URL.
func (k *knownEndpoints) get(url string) (*endpointConnection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.byURL[url]; known != nil {
		return known, nil
	}
	endpoint, err := endpoints.New(k.config, url)
	if err != nil {
		return nil, err
	}
	metadata, err := endpoint.Metadata()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	k.byURL[url] = &endpointConnection{Endpoint: endpoint, watches: newWatches(metadata)}
	return k.byURL[url], nil
}

// all returns all endpoints.
func (k *knownEndpoints) all() []*endpointConnection {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.byURL))
}
