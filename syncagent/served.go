package syncagent

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/syncagent/endpoints"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
	"github.com/atoll-dev/atoll/syncagent/view"
)

const (
	// describeDelay is how long changes of what is synced are collected before the syncer's view is described, describeInterval how
	// often the description is checked otherwise.
	describeDelay, describeInterval = time.Second, time.Minute
	// viewAttempts is how often, at discoveryInterval, a view that the agent may use is asked for a resource before the virtual workspace
	// of the export is used instead: the description takes a moment to reach all shards.
	viewAttempts = 10
)

// served is where the objects of a publication are at one endpoint: in the syncer's view, or in the virtual workspace of the export.
type served struct {
	endpoint *endpointConnection
	// resource is the published resource as it is named there.
	resource publication.Resource
	related  []syncer.RelatedResource
}

// discover looks for the resources of the publication at the endpoint. patient means that the view may have them later.
func (w *workspaces) discover(patient bool) (*served, error) {
	found, err := w.discoverView()
	if err == nil && found != nil {
		return found, nil
	}
	if patient && errors.Is(err, view.ErrNotServed) {
		return nil, &endpoints.NotServedError{Resource: w.serviceResource.GroupVersionResource()}
	}
	connection, err := w.endpoint.Discovery()
	if err != nil {
		return nil, err
	}
	if _, err := endpoints.Discover(connection, w.workspaceResource.GroupVersionResource()); err != nil {
		return nil, err
	}
	related, err := w.resolveRelated(connection)
	if err != nil {
		return nil, err
	}
	return &served{w.endpoint, w.workspaceResource, related}, nil
}

// discoverView is discover in the syncer's view; nil if the URL of the endpoint has none.
func (w *workspaces) discoverView() (*served, error) {
	connection, err := w.known.view(w.endpoint)
	if connection == nil || err != nil {
		return nil, err
	}
	var discovery discovery.DiscoveryInterface
	if discovery, err = connection.Discovery(); err != nil {
		return nil, err
	}
	resource, err := view.Find(discovery, w.serviceResource)
	if err != nil {
		return nil, err
	}
	related, err := w.resolveRelated(discovery)
	if err != nil {
		return nil, err
	}
	return &served{connection, resource, related}, nil
}

// exportClient writes the description of the syncer's view.
type exportClient struct {
	client.Client
	name string
}

// describeViews describes the syncer's view when what is synced has changed, until the context ends. Without the description, objects
// are read in the virtual workspace of the export.
func (s *synchronizations) describeViews(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.described:
		case <-time.After(describeInterval):
		}
		if !background.Sleep(ctx, describeDelay) {
			return
		}
		if s.export == nil {
			continue
		}
		if err := view.Publish(ctx, s.export, s.export.name, s.published()); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Could not describe the syncer's view")
		}
	}
}

// describe has the view described soon.
func (s *synchronizations) describe() {
	select {
	case s.described <- struct{}{}:
	default:
	}
}

// published returns what is synced.
func (s *synchronizations) published() []view.Published {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]view.Published, 0, len(s.running))
	for _, running := range s.running {
		all = append(all, view.Published{Spec: &running.publication.Spec, Service: running.serviceResource, Workspace: running.workspaceResource})
	}
	return all
}
