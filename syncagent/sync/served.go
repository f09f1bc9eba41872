package sync

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
	"github.com/atoll-dev/atoll/syncagent/view"
)

// viewAttempts is how often, at discoveryInterval, the agent requests a resource from a view that it may use before it uses the
// virtual workspace of the export instead: the description takes a moment to reach all shards.
const viewAttempts = 10

// served is where one endpoint serves the objects of a publication: in the syncer's view, or in the virtual workspace of the export.
type served struct {
	endpoint *workspaces.Endpoint
	// resource is the published resource as it is named there.
	resource workspaces.Resource
	related  []syncer.RelatedResource
	// revision is the revision of the publication's description in the view; it is empty in the virtual workspace of the export.
	revision string
}

// context returns the context of requests for the published resource.
func (s *served) context(ctx context.Context) context.Context {
	return workspaces.WithRevision(ctx, s.revision)
}

// isOver reports whether an error of the informer means that the view does not serve the publication any more: the agent has lost its
// permission, or the view does not have the resource, possibly because another resource has its name.
func (s *served) isOver(err error) bool {
	return s.revision != "" && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsConflict(err))
}

// discover finds the resources of the publication at the endpoint. If patient is true, it returns an error while the view may still start
// to serve them.
func (e *endpointSync) discover(ctx context.Context, patient bool) (*served, error) {
	found, err := e.discoverView(ctx)
	switch {
	case err == nil && found != nil:
		return found, nil
	case !patient || err == nil || errors.Is(err, view.ErrUnavailable):
	case errors.Is(err, view.ErrNotServed):
		return nil, &workspaces.NotServedError{Resource: e.parent.serviceResource.GroupVersionResource()}
	default:
		return nil, err
	}
	connection, err := e.endpoint.Discovery()
	if err != nil {
		return nil, err
	}
	if _, err := workspaces.Discover(connection, e.parent.workspaceResource.GroupVersionResource()); err != nil {
		return nil, err
	}
	related, err := e.parent.resolveRelated(connection)
	if err != nil {
		return nil, err
	}
	return &served{endpoint: e.endpoint, resource: e.parent.workspaceResource, related: related}, nil
}

// discoverView is discover for the syncer's view. It returns nil if the URL of the endpoint has no view.
func (e *endpointSync) discoverView(ctx context.Context) (*served, error) {
	connection, err := e.parent.shared.views.at(e.endpoint)
	if connection == nil || err != nil {
		return nil, err
	}
	var discovery discovery.DiscoveryInterface
	if discovery, err = connection.Discovery(); err != nil {
		return nil, err
	}
	resource, err := view.Find(discovery, e.parent.serviceResource)
	if err != nil {
		return nil, err
	}
	found := &served{endpoint: connection, resource: resource, revision: view.Revision(e.parent.published())}
	if err := found.check(ctx); err != nil {
		return nil, err
	}
	if found.related, err = e.parent.resolveRelated(discovery); err != nil {
		return nil, err
	}
	for _, r := range found.related {
		if r.Unresolved != nil && workspaceSide(r).Resource == "" {
			return nil, r.Unresolved // the virtual workspace of the export may serve it
		}
	}
	return found, nil
}

// awaitView waits until the view serves the resources. Callers use it while they read from the virtual workspace of the export. It
// returns false when the context has ended.
func (e *endpointSync) awaitView(ctx context.Context) bool {
	for background.Sleep(ctx, e.parent.shared.viewInterval) {
		if found, err := e.discoverView(ctx); err == nil && found != nil {
			return true
		}
	}
	return false
}

// noObjects is a label selector that matches no object.
const noObjects = publication.LabelAgentName + ",!" + publication.LabelAgentName

// check returns an error while the view has a different description of the publication.
func (s *served) check(ctx context.Context) error {
	dynamic, err := s.endpoint.Dynamic()
	if err != nil {
		return err
	}
	_, err = dynamic.Resource(s.resource.GroupVersionResource()).List(s.context(ctx), metav1.ListOptions{LabelSelector: noObjects, ResourceVersion: "0"})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return view.ErrNotServed
	case apierrors.IsForbidden(err):
		return view.ErrUnavailable
	}
	return err
}

// published returns the publication as the view has to serve it.
func (s *publicationSync) published() view.Published {
	return view.Published{Spec: &s.publication.Spec, Service: s.serviceResource, Workspace: s.workspaceResource}
}

// views are the syncer's views at the endpoints.
type views struct {
	config *rest.Config

	mu    sync.Mutex
	byURL map[string]*workspaces.Endpoint // by the URLs of the endpoints
}

// at returns the syncer's view at an endpoint, or nil if its URL can have none.
func (v *views) at(endpoint *workspaces.Endpoint) (*workspaces.Endpoint, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known := v.byURL[endpoint.URL]; known != nil {
		return known, nil
	}
	url, ok := view.URL(endpoint.URL)
	if !ok {
		return nil, nil
	}
	connection, err := workspaces.NewEndpoint(v.config, url)
	if err == nil {
		v.byURL[endpoint.URL] = connection
	}
	return connection, err
}
