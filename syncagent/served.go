package syncagent

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
	"github.com/atoll-dev/atoll/syncagent/view"
)

const (
	// describeDelay is how long the agent collects changes of synced publications before it writes the description of the syncer's view;
	// describeInterval is how often it checks the description without a change.
	describeDelay, describeInterval = time.Second, time.Minute
	// viewAttempts is how often, at discoveryInterval, the agent requests a resource from a view that it may use before it uses the
	// virtual workspace of the export instead: the description takes a moment to reach all shards.
	viewAttempts = 10
)

// served is where one endpoint serves the objects of a publication: in the syncer's view, or in the virtual workspace of the export.
type served struct {
	endpoint *endpointConnection
	// resource is the published resource as it is named there.
	resource workspaces.Resource
	related  []syncer.RelatedResource
	// revision is the revision of the publication's description in the view; it is empty in the virtual workspace of the export.
	revision string
}

// context returns the context of requests for the published resource.
func (f *served) context(ctx context.Context) context.Context {
	return workspaces.WithRevision(ctx, f.revision)
}

// isOver reports whether an error of the informer means that the view does not serve the publication any more: the agent has lost its
// permission, or the view does not have the resource, possibly because another resource has its name.
func (f *served) isOver(err error) bool {
	return f.revision != "" && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsConflict(err))
}

// discover finds the resources of the publication at the endpoint. If patient is true, it returns an error while the view may still start
// to serve them.
func (w *endpointSync) discover(ctx context.Context, patient bool) (*served, error) {
	found, err := w.discoverView(ctx)
	switch {
	case err == nil && found != nil:
		return found, nil
	case !patient || err == nil || errors.Is(err, view.ErrUnavailable):
	case errors.Is(err, view.ErrNotServed):
		return nil, &workspaces.NotServedError{Resource: w.serviceResource.GroupVersionResource()}
	default:
		return nil, err
	}
	connection, err := w.endpoint.Discovery()
	if err != nil {
		return nil, err
	}
	if _, err := workspaces.Discover(connection, w.workspaceResource.GroupVersionResource()); err != nil {
		return nil, err
	}
	related, err := w.resolveRelated(connection)
	if err != nil {
		return nil, err
	}
	return &served{endpoint: w.endpoint, resource: w.workspaceResource, related: related}, nil
}

// discoverView is discover for the syncer's view. It returns nil if the URL of the endpoint has no view.
func (w *endpointSync) discoverView(ctx context.Context) (*served, error) {
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
	found := &served{endpoint: connection, resource: resource, revision: view.Revision(w.published())}
	if err := found.check(ctx); err != nil {
		return nil, err
	}
	if found.related, err = w.resolveRelated(discovery); err != nil {
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
func (w *endpointSync) awaitView(ctx context.Context) bool {
	for background.Sleep(ctx, w.viewInterval) {
		if found, err := w.discoverView(ctx); err == nil && found != nil {
			return true
		}
	}
	return false
}

// noObjects is a label selector that matches no object.
const noObjects = publication.LabelAgentName + ",!" + publication.LabelAgentName

// check returns an error while the view has a different description of the publication.
func (f *served) check(ctx context.Context) error {
	dynamic, err := f.endpoint.Dynamic()
	if err != nil {
		return err
	}
	_, err = dynamic.Resource(f.resource.GroupVersionResource()).List(f.context(ctx), metav1.ListOptions{LabelSelector: noObjects, ResourceVersion: "0"})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return view.ErrNotServed
	case apierrors.IsForbidden(err):
		return view.ErrUnavailable
	}
	return err
}

// published returns the publication as the view has to serve it.
func (s *synchronization) published() view.Published {
	return view.Published{Spec: &s.publication.Spec, Service: s.serviceResource, Workspace: s.workspaceResource}
}

// exportClient writes the description of the syncer's view.
type exportClient struct {
	client.Client
	name string
}

// describeViews writes the description of the syncer's view when the synced publications have changed, until the context ends. Without
// the description, the agent reads objects from the virtual workspace of the export.
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

// describe schedules a write of the view's description.
func (s *synchronizations) describe() {
	select {
	case s.described <- struct{}{}:
	default:
	}
}

// published returns the publications that are synced.
func (s *synchronizations) published() []view.Published {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]view.Published, 0, len(s.running))
	for _, running := range s.running {
		all = append(all, running.published())
	}
	return all
}
