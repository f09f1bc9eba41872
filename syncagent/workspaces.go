package syncagent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
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
	*synchronization
	endpoint *endpointConnection

	mu         sync.Mutex
	controller *workspaces.Controller[workspaces.Key] // nil until the endpoint serves the resources
	informer   *workspaces.Informer                   // nil until the endpoint serves the resources
	reason     error                                  // why informer is nil
	// unresolved has the related resources that are not served.
	unresolved []string
}

// status returns nil if the informer has all objects of the endpoint and is connected, and the reason otherwise.
func (w *endpointSync) status() error {
	w.mu.Lock()
	running, reason := w.informer, w.reason
	w.mu.Unlock()
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
func (w *endpointSync) run(ctx context.Context) {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("endpoint", w.endpoint.URL))
	for ctx.Err() == nil {
		found, ok := w.awaitResources(ctx)
		if !ok {
			return
		}
		log.FromContext(ctx).V(1).Info("Syncing the workspaces of an endpoint", "url", found.endpoint.URL, "resource", found.resource.GroupVersionResource())
		if err := w.sync(ctx, found); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Could not sync the workspaces of an endpoint")
			w.failed(err)
		}
		background.Sleep(ctx, discoveryInterval)
	}
}

// failed sets the reason why nothing is synced until the next attempt.
func (w *endpointSync) failed(err error) {
	w.mu.Lock()
	w.informer, w.controller = nil, nil
	w.mu.Unlock()
	w.setReason(err)
	w.changed()
}

// awaitResources waits until the endpoint serves the published resource, and waits a limited time for the related ones: claims take a
// moment to reach all shards.
func (w *endpointSync) awaitResources(ctx context.Context) (*served, bool) {
	for attempt := 1; ; attempt++ {
		found, err := w.discover(ctx, attempt < viewAttempts)
		if err == nil && attempt < viewAttempts {
			err = found.firstUnresolved()
		}
		if err == nil {
			return found, true
		}
		w.setReason(err)
		if !background.Sleep(ctx, discoveryInterval) {
			return nil, false
		}
	}
}

func (f *served) firstUnresolved() error {
	for _, r := range f.related {
		if r.Unresolved != nil {
			return r.Unresolved
		}
	}
	return nil
}

func (w *endpointSync) setReason(err error) {
	var notServed *workspaces.NotServedError
	if !errors.As(err, &notServed) {
		err = errUnreachable
	}
	w.mu.Lock()
	changed := w.reason == nil || w.reason.Error() != err.Error()
	w.reason = err
	w.mu.Unlock()
	if changed {
		w.changed()
	}
}

// sync runs the informer of the primary objects, the watches of related objects, and the workers. It returns when the context ends, or
// when the objects are served at another URL because the view has become available or has ended.
func (w *endpointSync) sync(ctx context.Context, found *served) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	dynamic, err := found.endpoint.Dynamic()
	if err != nil {
		return err
	}
	clients, err := found.endpoint.Clients(scheme, found.resources()...)
	if err != nil {
		return err
	}
	events := workspaces.NewRecorder(w.config.AgentName, nil)
	reconciler, err := w.newReconciler(clients, found, events)
	if err != nil {
		return err
	}
	workers, err := w.newController(reconciler)
	if err != nil {
		return err
	}
	primaries := workspaces.NewInformer(dynamic.Resource(found.resource.GroupVersionResource()), "", indexPrimary,
		workspaces.Handler{OnChange: w.onPrimary, OnConnect: w.onConnect, OnDisconnect: w.changed, OnError: func(err error) {
			if found.isOver(err) {
				end() // the store remains, like that of an endpoint that does not respond, until its successor replaces it
			}
		}})
	reconciler.store = primaries.Store
	w.mu.Lock()
	w.informer, w.controller, w.unresolved = primaries, workers, found.unresolved()
	w.mu.Unlock()
	defer w.subscribeWorkspaces(found)()

	var running background.Group
	running.Go(func() { events.Run(ctx) })
	running.Go(func() {
		if !w.awaitCopies(ctx) {
			return
		}
		if err = workers.Start(ctx); err != nil {
			end()
		}
	})
	running.Go(func() {
		if w.awaitOtherRelated(ctx, found) {
			end()
		}
	})
	running.Go(func() { primaries.Run(found.context(ctx)) })
	running.Go(func() {
		if found.revision == "" && w.awaitView(ctx) {
			end()
		}
	})
	running.Wait()
	return err
}

// awaitOtherRelated waits until the related resources change: a resource becomes served, or is not served any more.
func (w *endpointSync) awaitOtherRelated(ctx context.Context, found *served) bool {
	if len(found.related) == 0 {
		<-ctx.Done()
		return false
	}
	for background.Sleep(ctx, relatedInterval) {
		discovery, err := found.endpoint.Discovery()
		if err != nil {
			continue
		}
		if current, err := w.resolveRelated(discovery); err == nil && !sameRelated(current, found.related) {
			return true
		}
	}
	return false
}

// awaitCopies waits until the informer has all copies. Without them, the syncer would create copies again.
func (w *endpointSync) awaitCopies(ctx context.Context) bool {
	select {
	case <-w.copiesSynced:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *endpointSync) newController(r reconcile.TypedReconciler[workspaces.Key]) (*workspaces.Controller[workspaces.Key], error) {
	return workspaces.NewController(workspaces.ControllerOptions[workspaces.Key]{
		Name: "sync", Metrics: "sync", Reconciler: r, ClusterOf: func(key workspaces.Key) string { return key.Cluster },
		Workers: workers, WorkersOfCluster: workers - 1, Timeout: reconcileTimeout, MinRetry: minRetry, MaxRetry: maxRetry,
		Log: w.log.WithValues("endpoint", w.endpoint.URL), OnStart: w.enqueueAll,
	})
}

// onPrimary handles a change of a primary object.
func (w *endpointSync) onPrimary(change workspaces.Change) {
	if change.Index == (workspaces.IndexKey{}) { // deleted
		if w.copies.HasIndex(change.Before) {
			w.orphans.trigger()
		}
		return
	}
	w.enqueue(change.Key)
}

// onConnect is called when the endpoint becomes reachable. It enqueues all objects, so that objects that wait after errors do not wait
// longer.
func (w *endpointSync) onConnect() {
	w.enqueueAll()
	w.orphans.trigger()
	w.changed()
}

func (w *endpointSync) enqueueAll() {
	if store := w.store(); store != nil {
		for _, key := range store.Keys() {
			w.enqueue(key)
		}
	}
}

// store returns the primary objects, or nil while the endpoint does not serve them.
func (w *endpointSync) store() *workspaces.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer == nil {
		return nil
	}
	return w.informer.Store
}

// enqueue enqueues an object.
func (w *endpointSync) enqueue(key workspaces.Key) {
	w.mu.Lock()
	workers := w.controller
	w.mu.Unlock()
	if workers != nil { // otherwise all objects are enqueued when the controller starts
		workers.Add(key)
	}
}

// enqueueIndex enqueues the objects with an index key, and reports whether any exist.
func (w *endpointSync) enqueueIndex(index workspaces.IndexKey) bool {
	store := w.store()
	if store == nil {
		return false
	}
	keys := store.ByIndex(index)
	for _, key := range keys {
		w.enqueue(key)
	}
	return len(keys) > 0
}

// unresolved returns messages about the related resources that are not served, for the owner of the publication.
func (f *served) unresolved() []string {
	var problems []string
	for _, r := range f.related {
		if r.Unresolved != nil {
			problems = append(problems, fmt.Sprintf("related resource %q: %s", r.Spec.Identifier, strings.ReplaceAll(r.Unresolved.Error(), "\n", ", ")))
		}
	}
	return problems
}

// unresolvedRelated returns messages about the related resources that are not served at the endpoint or on the service cluster.
func (w *endpointSync) unresolvedRelated() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unresolved
}

// resources returns all resources that are read or written in workspaces.
func (f *served) resources() []workspaces.Resource {
	resources := []workspaces.Resource{f.resource, namespaces, eventResource, logicalClusters}
	for _, r := range f.related {
		if side := workspaceSide(r); side.Resource != "" {
			resources = append(resources, side)
		}
	}
	return resources
}

// Resources of the core group that every server has.
var (
	namespaces    = coreResource("Namespace", "namespaces", false)
	eventResource = coreResource("Event", "events", true)
	secrets       = coreResource("Secret", "secrets", true)
)

func coreResource(kind, resource string, namespaced bool) workspaces.Resource {
	return workspaces.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kind), Resource: resource, Namespaced: namespaced}
}

// primaryReconciler syncs one primary object.
type primaryReconciler struct {
	syncer  *syncer.Syncer
	clients *workspaces.Clients
	store   *workspaces.Store
	// workspace is the published resource by its name in workspaces, served by its name at the endpoint.
	workspace, served workspaces.Resource
}

func (w *endpointSync) newReconciler(clients *workspaces.Clients, found *served, events syncer.Events) (*primaryReconciler, error) {
	service, err := w.newServiceClient(found.related)
	if err != nil {
		return nil, err
	}
	config := w.syncerConfig()
	config.Service, config.Related, config.Events = &storeClient{service, w.serviceResource, w.copies.Store}, found.related, events
	return &primaryReconciler{clients: clients, workspace: w.workspaceResource, served: found.resource, syncer: syncer.New(config)}, nil
}

// Reconcile implements reconcile.TypedReconciler.
func (r *primaryReconciler) Reconcile(ctx context.Context, key workspaces.Key) (reconcile.Result, error) {
	cluster, err := logicalcluster.ParseName(key.Cluster)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("an object without logical cluster: %w", err))
	}
	request := syncer.Request{Cluster: cluster}
	request.Namespace, request.Name = key.Namespace, key.Name
	request.Workspace = view.NewClient(&workspaceClient{storeClient{r.clients.Client(cluster), r.served, r.store}, cluster}, r.workspace, r.served)
	result, err := r.syncer.Sync(ctx, request)
	return reconcile.Result{RequeueAfter: result.RequeueAfter}, err
}
