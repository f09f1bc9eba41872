package syncagent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// synchronization syncs the objects of one publication, at all endpoints.
type synchronization struct {
	*dependencies
	publication                        *publication.Publication
	serviceResource, workspaceResource workspaces.Resource
	log                                logr.Logger

	copies       *workspaces.Informer
	copiesSynced chan struct{}
	orphans      *orphans
	// changed is called when the status may have changed.
	changed func()

	cancel  context.CancelFunc
	running background.Group
	ctx     context.Context

	mu        sync.Mutex
	endpoints map[string]*runningEndpoint
}

// runningEndpoint is the part of a synchronization at one endpoint.
type runningEndpoint struct {
	*endpointSync
	cancel context.CancelFunc
	ended  chan struct{}
}

// newSynchronization returns a synchronization that does nothing until start is called.
func newSynchronization(d *dependencies, p *publication.Publication, service, workspace workspaces.Resource, changed func()) *synchronization {
	s := &synchronization{
		dependencies: d, publication: p, serviceResource: service, workspaceResource: workspace, changed: changed,
		log:          d.log.WithValues("publishedResource", p.Object.GetName()),
		copiesSynced: make(chan struct{}), endpoints: map[string]*runningEndpoint{},
	}
	var once sync.Once
	s.copies = workspaces.NewInformer(d.serviceDynamic.Resource(service.GroupVersionResource()), publication.LabelAgentName+"="+d.config.AgentName, indexCopy, workspaces.Handler{
		OnChange: s.onCopy,
		OnConnect: func() {
			once.Do(func() { close(s.copiesSynced) })
			s.eachEndpoint((*endpointSync).enqueueAll)
			s.orphans.trigger()
			s.changed()
		},
		OnDisconnect: s.changed,
	})
	s.orphans = newOrphans(s)
	return s
}

// sameAs reports whether a synchronization has these resources and this content of the publication.
func (s *synchronization) sameAs(p *publication.Publication, service, workspace workspaces.Resource) bool {
	return s.serviceResource == service && s.workspaceResource == workspace &&
		reflect.DeepEqual(s.publication.Spec, p.Spec) && reflect.DeepEqual(s.publication.Allowed, p.Allowed)
}

func (s *synchronization) start() {
	s.ctx, s.cancel = context.WithCancel(log.IntoContext(context.Background(), s.log))
	s.log.Info("Starting to sync objects", "service", s.serviceResource.GroupVersionResource(), "workspaces", s.workspaceResource.GroupVersionResource())
	s.running.Go(func() { s.copies.Run(s.ctx) })
	s.running.Go(func() { s.orphans.run(s.ctx) })
	unsubscribe := s.subscribeService()
	s.running.Go(func() {
		<-s.ctx.Done()
		unsubscribe()
	})
}

// stop stops the synchronization and returns when all its goroutines have ended.
func (s *synchronization) stop() {
	s.cancel()
	s.setEndpoints(nil)
	s.running.Wait()
	s.orphans.forget()
	s.log.Info("Stopped syncing objects")
}

// setEndpoints runs the synchronization at these endpoints. It returns when the goroutines at all other endpoints have ended.
func (s *synchronization) setEndpoints(wanted map[string]*endpointConnection) {
	var stopped []*runningEndpoint
	s.mu.Lock()
	for url, running := range s.endpoints {
		if wanted[url] != running.endpoint {
			running.cancel()
			stopped = append(stopped, running)
			delete(s.endpoints, url)
		}
	}
	s.mu.Unlock()
	for _, running := range stopped {
		<-running.ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, endpoint := range wanted {
		if s.endpoints[url] == nil {
			s.endpoints[url] = s.startEndpoint(endpoint)
		}
	}
}

func (s *synchronization) startEndpoint(endpoint *endpointConnection) *runningEndpoint {
	ctx, cancel := context.WithCancel(s.ctx)
	running := &runningEndpoint{endpointSync: &endpointSync{synchronization: s, endpoint: endpoint, reason: errNotSynced}, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(running.ended)
		running.run(ctx)
	}()
	return running
}

func (s *synchronization) eachEndpoint(call func(*endpointSync)) {
	for _, w := range s.currentEndpoints() {
		call(w)
	}
}

// currentEndpoints returns the parts at all endpoints.
func (s *synchronization) currentEndpoints() []*endpointSync {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := make([]*endpointSync, 0, len(s.endpoints))
	for _, running := range s.endpoints {
		current = append(current, running.endpointSync)
	}
	return current
}

// onCopy handles a change of a copy. It enqueues the primary object that the copy names, and the one that it named before the change.
func (s *synchronization) onCopy(change workspaces.Change) {
	s.onIndex(change.Index)
	if change.Before != change.Index {
		s.onIndex(change.Before)
	}
	if change.Index == (workspaces.IndexKey{}) {
		s.namespaces.check(change.Namespace)
	}
}

func (s *synchronization) onIndex(index workspaces.IndexKey) {
	if index != (workspaces.IndexKey{}) && !s.enqueueIndex(index) {
		s.orphans.trigger()
	}
}

func (s *synchronization) enqueueIndex(index workspaces.IndexKey) (found bool) {
	s.eachEndpoint(func(w *endpointSync) { found = w.enqueueIndex(index) || found })
	return found
}

// syncerConfig returns the configuration of syncers, without the fields that concern workspaces.
func (s *synchronization) syncerConfig() syncer.Config {
	return syncer.Config{
		AgentName: s.config.AgentName, Namespace: s.config.Namespace, Publication: s.publication,
		WorkspaceResource: s.workspaceResource, ServiceResource: s.serviceResource,
		Service: s.service, Copies: copies{s.copies.Store},
	}
}

// newServiceClient returns a client of the service cluster whose mapper has the resources of the publication.
func (s *synchronization) newServiceClient(related []syncer.RelatedResource) (client.Client, error) {
	resources := []workspaces.Resource{s.serviceResource, namespaces, secrets}
	for _, r := range related {
		if side := serviceSide(r); side.Resource != "" {
			resources = append(resources, side)
		}
	}
	c, err := client.New(s.serviceConfig, client.Options{HTTPClient: s.serviceHTTP, Scheme: scheme, Mapper: workspaces.NewMapper(s.service.RESTMapper(), resources...)})
	if err != nil {
		return nil, fmt.Errorf("building the client of the service cluster: %w", err)
	}
	return c, nil
}

// resolveRelated discovers the related resources on both sides. A related resource that is not served does not prevent the sync of the
// others.
func (s *synchronization) resolveRelated(workspace discovery.ServerResourcesInterface) ([]syncer.RelatedResource, error) {
	return resolveRelated(s.publication.Spec.Related, s.serviceDiscovery, workspace)
}

func resolveRelated(specs []syncagentv1alpha1.RelatedResourceSpec, service, workspace discovery.ServerResourcesInterface) ([]syncer.RelatedResource, error) {
	var resolved []syncer.RelatedResource
	for _, spec := range specs {
		origin, copied := service, workspace
		if spec.Origin == syncagentv1alpha1.RelatedResourceOriginKcp {
			origin, copied = copied, origin
		}
		r := syncer.RelatedResource{Spec: spec}
		var errs [2]error
		r.Origin, errs[0] = workspaces.Discover(origin, related.OriginResource(spec))
		r.Copy, errs[1] = workspaces.Discover(copied, related.CopyResource(spec))
		for _, err := range errs {
			var notServed *workspaces.NotServedError
			if err != nil && !errors.As(err, &notServed) {
				return nil, err
			}
		}
		r.Unresolved = errors.Join(errs[:]...)
		resolved = append(resolved, r)
	}
	return resolved, nil
}

// sameRelated reports whether two lists have the same resolved related resources.
func sameRelated(a, b []syncer.RelatedResource) bool {
	return slices.EqualFunc(a, b, func(a, b syncer.RelatedResource) bool {
		return a.Origin == b.Origin && a.Copy == b.Copy && (a.Unresolved == nil) == (b.Unresolved == nil)
	})
}

// serviceSide returns the related resource on the service cluster.
func serviceSide(r syncer.RelatedResource) workspaces.Resource {
	if r.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return r.Origin
	}
	return r.Copy
}

// workspaceSide returns the related resource in workspaces.
func workspaceSide(r syncer.RelatedResource) workspaces.Resource {
	if r.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return r.Copy
	}
	return r.Origin
}
