package sync

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/orphans"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/servers"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// publicationSync syncs the objects of one publication, at all endpoints.
type publicationSync struct {
	shared                             *shared
	publication                        *publication.Publication
	serviceResource, workspaceResource workspaces.Resource
	log                                logr.Logger

	copies       *workspaces.Informer
	copiesSynced chan struct{}
	orphans      *orphans.Finder
	// changed is called when the status may have changed.
	changed func()

	cancel    context.CancelFunc
	running   background.Group
	ctx       context.Context
	endpoints workspaces.Running[string, *endpointSync] // by URL
}

// newPublicationSync returns a synchronization that does nothing until start is called.
func newPublicationSync(d *shared, p *publication.Publication, service, workspace workspaces.Resource, changed func()) *publicationSync {
	s := &publicationSync{
		shared: d, publication: p, serviceResource: service, workspaceResource: workspace, changed: changed,
		log:          d.log.WithValues("publishedResource", p.Object.GetName()),
		copiesSynced: make(chan struct{}),
	}
	var once sync.Once
	s.copies = workspaces.NewInformer(d.serviceDynamic.Resource(service.GroupVersionResource()), publication.LabelAgentName+"="+d.config.AgentName, indexCopy, workspaces.Handler{
		OnChange: s.onCopy,
		OnConnect: func() {
			once.Do(func() { close(s.copiesSynced) })
			s.eachEndpoint((*endpointSync).enqueueAll)
			s.orphans.Trigger()
			s.changed()
		},
		OnDisconnect: s.changed,
	})
	s.orphans = orphans.NewFinder(orphans.Config{
		Publication: p, Resource: workspace, Policy: d.config.OrphanPolicy, Delay: d.orphanDelay, Known: d.known, Copies: s.copies,
		Primaries: s.primaries, Syncer: s.syncerConfig(), Recorder: d.recorder, Changed: changed,
	})
	return s
}

// sameAs reports whether a synchronization has these resources and this content of the publication.
func (s *publicationSync) sameAs(p *publication.Publication, service, workspace workspaces.Resource) bool {
	return s.serviceResource == service && s.workspaceResource == workspace &&
		reflect.DeepEqual(s.publication.Spec, p.Spec) && reflect.DeepEqual(s.publication.Allowed, p.Allowed)
}

func (s *publicationSync) start() {
	s.ctx, s.cancel = context.WithCancel(log.IntoContext(context.Background(), s.log))
	s.log.Info("Starting to sync objects", "service", s.serviceResource.GroupVersionResource(), "workspaces", s.workspaceResource.GroupVersionResource())
	s.running.Go(func() { s.copies.Run(s.ctx) })
	s.running.Go(func() { s.orphans.Run(s.ctx) })
	unsubscribe := s.subscribeService()
	s.running.Go(func() {
		<-s.ctx.Done()
		unsubscribe()
	})
}

// stop stops the synchronization and returns when all its goroutines have ended.
func (s *publicationSync) stop() {
	s.cancel()
	s.setEndpoints(nil)
	s.running.Wait()
	s.orphans.DeleteMetrics()
	s.log.Info("Stopped syncing objects")
}

// setEndpoints runs the synchronization at these endpoints. It returns when the goroutines at all other endpoints have ended.
func (s *publicationSync) setEndpoints(wanted map[string]*workspaces.Endpoint) {
	s.endpoints.StopExcept(func(url string, running *endpointSync) bool { return wanted[url] == running.endpoint })
	for url, endpoint := range wanted {
		if _, found := s.endpoints.Get(url); !found {
			started := &endpointSync{parent: s, endpoint: endpoint, reason: errNotSynced}
			s.endpoints.Start(s.ctx, url, started, started.run)
		}
	}
}

func (s *publicationSync) eachEndpoint(call func(*endpointSync)) {
	for _, e := range s.endpoints.All() {
		call(e)
	}
}

// primaries returns the stores of the primary objects at all endpoints, and whether all are complete.
func (s *publicationSync) primaries() (stores []*workspaces.Store, complete bool) {
	complete = true
	s.eachEndpoint(func(e *endpointSync) {
		complete = complete && e.status() == nil
		stores = append(stores, e.store())
	})
	return stores, complete
}

// onCopy handles a change of a copy. It enqueues the primary object that the copy names, and the one that it named before the change.
func (s *publicationSync) onCopy(change workspaces.Change) {
	s.onIndex(change.Index)
	if change.Before != change.Index {
		s.onIndex(change.Before)
	}
	if change.Index == (workspaces.IndexKey{}) {
		s.shared.namespaces.check(change.Namespace)
	}
}

func (s *publicationSync) onIndex(index workspaces.IndexKey) {
	if index != (workspaces.IndexKey{}) && !s.enqueueIndex(index) {
		s.orphans.Trigger()
	}
}

func (s *publicationSync) enqueueIndex(index workspaces.IndexKey) (found bool) {
	s.eachEndpoint(func(e *endpointSync) { found = e.enqueueIndex(index) || found })
	return found
}

// syncerConfig returns the configuration of syncers, without the fields that concern workspaces.
func (s *publicationSync) syncerConfig() syncer.Config {
	return syncer.Config{
		AgentName: s.shared.config.AgentName, Namespace: s.shared.config.Namespace, Publication: s.publication,
		WorkspaceResource: s.workspaceResource, ServiceResource: s.serviceResource,
		Service: s.shared.service, Copies: copies{s.copies.Store},
	}
}

// newServiceClient returns a client of the service cluster whose mapper has the resources of the publication.
func (s *publicationSync) newServiceClient(related []syncer.RelatedResource) (client.Client, error) {
	resources := []workspaces.Resource{s.serviceResource, workspaces.Namespaces, workspaces.Secrets}
	for _, r := range related {
		if side := serviceSide(r); side.Resource != "" {
			resources = append(resources, side)
		}
	}
	c, err := client.New(s.shared.serviceConfig, client.Options{HTTPClient: s.shared.serviceHTTP, Scheme: servers.Scheme, Mapper: workspaces.NewMapper(s.shared.service.RESTMapper(), resources...)})
	if err != nil {
		return nil, fmt.Errorf("building the client of the service cluster: %w", err)
	}
	return c, nil
}
