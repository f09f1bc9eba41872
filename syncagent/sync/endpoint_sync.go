package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/servers"
	"github.com/atoll-dev/atoll/syncagent/syncer"
	"github.com/atoll-dev/atoll/syncagent/view"
)

const (
	// workers is how many objects of one publication and endpoint are synced at the same time. Each endpoint has its own workers, so that
	// an endpoint that does not respond does not occupy the workers of others.
	workers = 4
	// reconcileTimeout bounds the sync of one object.
	reconcileTimeout = time.Minute
	// minRetry and maxRetry bound the delay after an error. A failing object delays no other object.
	minRetry, maxRetry = 100 * time.Millisecond, time.Minute
	// discoveryInterval is how often an endpoint is queried for resources that it does not serve yet.
	discoveryInterval = time.Second
	// relatedInterval is how often related resources are discovered again.
	relatedInterval = 10 * time.Second
)

// endpointSync syncs the objects of one publication in all workspaces of one endpoint.
type endpointSync struct {
	parent   *publicationSync
	endpoint *workspaces.Endpoint

	mu         sync.Mutex
	controller *workspaces.Controller[workspaces.Key] // nil until the endpoint serves the resources
	informer   *workspaces.Informer                   // nil until the endpoint serves the resources
	reason     error                                  // why informer is nil
	// unresolved has the related resources that are not served.
	unresolved []string
}

// status returns nil if the informer has all objects of the endpoint and is connected, and the reason otherwise.
func (e *endpointSync) status() error {
	e.mu.Lock()
	running, reason := e.informer, e.reason
	e.mu.Unlock()
	if running == nil {
		return reason
	}
	synced, err := running.Status()
	switch {
	case err != nil:
		return errUnreachable
	case !synced:
		return errNotSynced
	}
	return nil
}

var (
	errUnreachable = errors.New("it does not answer")
	errNotSynced   = errors.New("its objects are being read")
)

// run returns when the context has ended and all goroutines that it started have ended.
func (e *endpointSync) run(ctx context.Context) {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("endpoint", e.endpoint.URL))
	for ctx.Err() == nil {
		found, ok := e.awaitResources(ctx)
		if !ok {
			return
		}
		log.FromContext(ctx).V(1).Info("Syncing the workspaces of an endpoint", "url", found.endpoint.URL, "resource", found.resource.GroupVersionResource())
		if err := e.sync(ctx, found); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to sync the workspaces of an endpoint")
			e.failed(err)
		}
		background.Sleep(ctx, discoveryInterval)
	}
}

// failed sets the reason why nothing is synced until the next attempt.
func (e *endpointSync) failed(err error) {
	e.mu.Lock()
	e.informer, e.controller = nil, nil
	e.mu.Unlock()
	e.setReason(err)
	e.parent.changed()
}

// awaitResources waits until the endpoint serves the published resource, and waits a limited time for the related ones: claims take a
// moment to reach all shards.
func (e *endpointSync) awaitResources(ctx context.Context) (*served, bool) {
	for attempt := 1; ; attempt++ {
		found, err := e.discover(ctx, attempt < viewAttempts)
		if err == nil && attempt < viewAttempts {
			err = found.firstUnresolved()
		}
		if err == nil {
			return found, true
		}
		e.setReason(err)
		if !background.Sleep(ctx, discoveryInterval) {
			return nil, false
		}
	}
}

func (s *served) firstUnresolved() error {
	for _, r := range s.related {
		if r.Unresolved != nil {
			return r.Unresolved
		}
	}
	return nil
}

func (e *endpointSync) setReason(err error) {
	var notServed *workspaces.NotServedError
	if !errors.As(err, &notServed) {
		err = errUnreachable
	}
	e.mu.Lock()
	changed := e.reason == nil || e.reason.Error() != err.Error()
	e.reason = err
	e.mu.Unlock()
	if changed {
		e.parent.changed()
	}
}

// sync runs the informer of the primary objects, the watches of related objects, and the workers. It returns when the context ends, or
// when the objects are served at another URL because the view has become available or has ended.
func (e *endpointSync) sync(ctx context.Context, found *served) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	dynamic, err := found.endpoint.Dynamic()
	if err != nil {
		return err
	}
	clients, err := found.endpoint.Clients(servers.Scheme, found.resources()...)
	if err != nil {
		return err
	}
	events := workspaces.NewRecorder(e.parent.shared.config.AgentName, nil)
	reconciler, err := e.newReconciler(clients, found, events)
	if err != nil {
		return err
	}
	workers, err := e.newController(reconciler)
	if err != nil {
		return err
	}
	primaries := workspaces.NewInformer(dynamic.Resource(found.resource.GroupVersionResource()), "", indexPrimary,
		workspaces.Handler{OnChange: e.onPrimary, OnConnect: e.onConnect, OnDisconnect: e.parent.changed, OnError: func(err error) {
			if found.isOver(err) {
				end() // the store remains, like that of an endpoint that does not respond, until its successor replaces it
			}
		}})
	reconciler.store = primaries.Store
	e.mu.Lock()
	e.informer, e.controller, e.unresolved = primaries, workers, found.unresolved()
	e.mu.Unlock()
	defer e.subscribeWorkspaces(found)()

	var running background.Group
	running.Go(func() { events.Run(ctx) })
	running.Go(func() {
		if !e.awaitCopies(ctx) {
			return
		}
		if err = workers.Start(ctx); err != nil {
			end()
		}
	})
	running.Go(func() {
		if e.awaitOtherRelated(ctx, found) {
			end()
		}
	})
	running.Go(func() { primaries.Run(found.context(ctx)) })
	running.Go(func() {
		if found.revision == "" && e.awaitView(ctx) {
			end()
		}
	})
	running.Wait()
	return err
}

// awaitOtherRelated waits until the related resources change: a resource becomes served, or is not served any more.
func (e *endpointSync) awaitOtherRelated(ctx context.Context, found *served) bool {
	if len(found.related) == 0 {
		<-ctx.Done()
		return false
	}
	for background.Sleep(ctx, relatedInterval) {
		discovery, err := found.endpoint.Discovery()
		if err != nil {
			continue
		}
		if current, err := e.parent.resolveRelated(discovery); err == nil && !sameRelated(current, found.related) {
			return true
		}
	}
	return false
}

// awaitCopies waits until the informer has all copies. Without them, the syncer would create copies again.
func (e *endpointSync) awaitCopies(ctx context.Context) bool {
	select {
	case <-e.parent.copiesSynced:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *endpointSync) newController(r reconcile.TypedReconciler[workspaces.Key]) (*workspaces.Controller[workspaces.Key], error) {
	return workspaces.NewController(workspaces.ControllerOptions[workspaces.Key]{
		Name: "sync", Metrics: "sync", Reconciler: r, ClusterOf: func(key workspaces.Key) string { return key.Cluster },
		Workers: workers, WorkersOfCluster: workers - 1, Timeout: reconcileTimeout, MinRetry: minRetry, MaxRetry: maxRetry,
		Log: e.parent.log.WithValues("endpoint", e.endpoint.URL), OnStart: e.enqueueAll,
	})
}

// onPrimary handles a change of a primary object.
func (e *endpointSync) onPrimary(change workspaces.Change) {
	if change.Index == (workspaces.IndexKey{}) { // deleted
		if e.parent.copies.HasIndex(change.Before) {
			e.parent.orphans.Trigger()
		}
		return
	}
	e.enqueue(change.Key)
}

// onConnect is called when the endpoint becomes reachable. It enqueues all objects, so that objects that wait after errors do not wait
// longer.
func (e *endpointSync) onConnect() {
	e.enqueueAll()
	e.parent.orphans.Trigger()
	e.parent.changed()
}

func (e *endpointSync) enqueueAll() {
	if store := e.store(); store != nil {
		for _, key := range store.Keys() {
			e.enqueue(key)
		}
	}
}

// store returns the primary objects, or nil while the endpoint does not serve them.
func (e *endpointSync) store() *workspaces.Store {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.informer == nil {
		return nil
	}
	return e.informer.Store
}

// enqueue enqueues an object.
func (e *endpointSync) enqueue(key workspaces.Key) {
	e.mu.Lock()
	workers := e.controller
	e.mu.Unlock()
	if workers != nil { // otherwise all objects are enqueued when the controller starts
		workers.Add(key)
	}
}

// enqueueIndex enqueues the objects with an index key, and reports whether any exist.
func (e *endpointSync) enqueueIndex(index workspaces.IndexKey) bool {
	store := e.store()
	if store == nil {
		return false
	}
	keys := store.ByIndex(index)
	for _, key := range keys {
		e.enqueue(key)
	}
	return len(keys) > 0
}

// unresolved returns messages about the related resources that are not served, for the owner of the publication.
func (s *served) unresolved() []string {
	var problems []string
	for _, r := range s.related {
		if r.Unresolved != nil {
			problems = append(problems, fmt.Sprintf("related resource %q: %s", r.Spec.Identifier, strings.ReplaceAll(r.Unresolved.Error(), "\n", ", ")))
		}
	}
	return problems
}

// unresolvedRelated returns messages about the related resources that are not served at the endpoint or on the service cluster.
func (e *endpointSync) unresolvedRelated() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unresolved
}

// resources returns all resources that are read or written in workspaces.
func (s *served) resources() []workspaces.Resource {
	resources := []workspaces.Resource{s.resource, workspaces.Namespaces, workspaces.Events, workspaces.LogicalClusters}
	for _, r := range s.related {
		if side := workspaceSide(r); side.Resource != "" {
			resources = append(resources, side)
		}
	}
	return resources
}

// primaryReconciler syncs one primary object.
type primaryReconciler struct {
	syncer  *syncer.Syncer
	clients *workspaces.Clients
	store   *workspaces.Store
	// workspace is the published resource by its name in workspaces, served by its name at the endpoint.
	workspace, served workspaces.Resource
}

func (e *endpointSync) newReconciler(clients *workspaces.Clients, found *served, events syncer.Events) (*primaryReconciler, error) {
	service, err := e.parent.newServiceClient(found.related)
	if err != nil {
		return nil, err
	}
	config := e.parent.syncerConfig()
	config.Service, config.Related, config.Events = &storeClient{service, e.parent.serviceResource, e.parent.copies.Store}, found.related, events
	return &primaryReconciler{clients: clients, workspace: e.parent.workspaceResource, served: found.resource, syncer: syncer.New(config)}, nil
}

// Reconcile implements reconcile.TypedReconciler.
func (r *primaryReconciler) Reconcile(ctx context.Context, key workspaces.Key) (reconcile.Result, error) {
	cluster, err := logicalcluster.ParseName(key.Cluster)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("an object without logical cluster: %w", err))
	}
	request := syncer.Request{Cluster: cluster}
	request.Namespace, request.Name = key.Namespace, key.Name
	request.Workspace = view.NewClient(newWorkspaceClient(r.clients.Client(cluster), cluster, r.served, r.store), r.workspace, r.served)
	result, err := r.syncer.Sync(ctx, request)
	return reconcile.Result{RequeueAfter: result.RequeueAfter}, err
}
