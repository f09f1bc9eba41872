package syncagent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/internal/fairqueue"
	"github.com/atoll-dev/atoll/internal/informer"
	"github.com/atoll-dev/atoll/internal/workspaceevents"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/syncer"
	"github.com/atoll-dev/atoll/syncagent/view"
)

const (
	// workers is how many objects of one publication and endpoint are synced at the same time. Each endpoint has its own workers, so that
	// an endpoint that does not respond does not occupy the workers of others.
	workers = 4
	// passTimeout bounds the sync of one object.
	passTimeout = time.Minute
	// minRetry and maxRetry bound the delay after an error. A failing object delays no other object.
	minRetry, maxRetry = 100 * time.Millisecond, time.Minute
	// discoveryInterval is how often an endpoint is queried for resources that it does not serve yet.
	discoveryInterval = time.Second
	// relatedInterval is how often related resources are discovered again.
	relatedInterval = 10 * time.Second
)

// workspaces syncs the objects of one publication in all workspaces of one endpoint.
type workspaces struct {
	*synchronization
	endpoint *endpointConnection

	mu       sync.Mutex
	queue    workqueue.TypedInterface[informer.Key] // nil until it runs
	informer *informer.Informer                     // nil until the endpoint serves the resources
	reason   error                                  // why informer is nil
	// unresolved has the related resources that are not served.
	unresolved []string
}

// status returns nil if the informer has all objects of the endpoint and is connected, and the reason otherwise.
func (w *workspaces) status() error {
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
func (w *workspaces) run(ctx context.Context) {
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
func (w *workspaces) failed(err error) {
	w.mu.Lock()
	w.informer, w.queue = nil, nil
	w.mu.Unlock()
	w.setReason(err)
	w.changed()
}

// awaitResources waits until the endpoint serves the published resource, and waits a limited time for the related ones: claims take a
// moment to reach all shards.
func (w *workspaces) awaitResources(ctx context.Context) (*served, bool) {
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

func (w *workspaces) setReason(err error) {
	var notServed *endpoints.NotServedError
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
func (w *workspaces) sync(ctx context.Context, found *served) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	dynamic, err := found.endpoint.Dynamic()
	if err != nil {
		return err
	}
	clients, err := found.endpoint.Workspaces(scheme, found.resources()...)
	if err != nil {
		return err
	}
	events := workspaceevents.New(w.config.AgentName, nil)
	reconciler, err := w.newReconciler(clients, found, events)
	if err != nil {
		return err
	}
	workers, err := w.newController(reconciler)
	if err != nil {
		return err
	}
	primaries := informer.New(dynamic.Resource(found.resource.GroupVersionResource()), "", indexPrimary,
		informer.Handler{OnChange: w.onPrimary, OnConnect: w.onConnect, OnDisconnect: w.changed, OnError: func(err error) {
			if found.isOver(err) {
				end() // the store remains, like that of an endpoint that does not respond, until its successor replaces it
			}
		}})
	reconciler.store = primaries.Store
	w.mu.Lock()
	w.informer, w.unresolved = primaries, found.unresolved()
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
func (w *workspaces) awaitOtherRelated(ctx context.Context, found *served) bool {
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
func (w *workspaces) awaitCopies(ctx context.Context) bool {
	select {
	case <-w.copiesSynced:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *workspaces) newController(r reconcile.TypedReconciler[informer.Key]) (controller.TypedController[informer.Key], error) {
	unique := true
	c, err := controller.NewTypedUnmanaged("sync", controller.TypedOptions[informer.Key]{
		Reconciler: r, MaxConcurrentReconciles: workers, SkipNameValidation: &unique, ReconciliationTimeout: passTimeout,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[informer.Key](minRetry, maxRetry),
		Logger:      w.log.WithValues("endpoint", w.endpoint.URL), NewQueue: newQueue,
	})
	if err != nil {
		return nil, err
	}
	return c, c.Watch(source.TypedFunc[informer.Key](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[informer.Key]) error {
		w.mu.Lock()
		w.queue = queue
		w.mu.Unlock()
		w.enqueueAll()
		return nil
	}))
}

// newQueue returns a queue that takes turns between logical clusters: one with many objects delays the objects of another by one at a
// time. A logical cluster whose objects take long, for example because of a slow webhook, leaves one worker to others.
func newQueue(name string, limiter workqueue.TypedRateLimiter[informer.Key]) workqueue.TypedRateLimitingInterface[informer.Key] {
	inTurn := fairqueue.New(name, func(key informer.Key) string { return key.Cluster }, workers-1)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[informer.Key]{
		Name: name, DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[informer.Key]{Name: name, Queue: inTurn}),
	})
}

// onPrimary handles a change of a primary object.
func (w *workspaces) onPrimary(change informer.Change) {
	if change.Index == (informer.IndexKey{}) { // deleted
		if w.copies.HasIndex(change.Before) {
			w.orphans.trigger()
		}
		return
	}
	w.enqueue(change.Key)
}

// onConnect is called when the endpoint becomes reachable. It enqueues all objects, so that objects that wait after errors do not wait
// longer.
func (w *workspaces) onConnect() {
	w.enqueueAll()
	w.orphans.trigger()
	w.changed()
}

func (w *workspaces) enqueueAll() {
	if store := w.store(); store != nil {
		for _, key := range store.Keys() {
			w.enqueue(key)
		}
	}
}

// store returns the primary objects, or nil while the endpoint does not serve them.
func (w *workspaces) store() *informer.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer == nil {
		return nil
	}
	return w.informer.Store
}

// enqueue enqueues an object.
func (w *workspaces) enqueue(key informer.Key) {
	w.mu.Lock()
	queue := w.queue
	w.mu.Unlock()
	if queue != nil { // otherwise all objects are enqueued when the queue starts
		queue.Add(key)
	}
}

// enqueueIndex enqueues the objects with an index key, and reports whether any exist.
func (w *workspaces) enqueueIndex(index informer.IndexKey) bool {
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
func (w *workspaces) unresolvedRelated() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unresolved
}

// resources returns all resources that are read or written in workspaces.
func (f *served) resources() []endpoints.Resource {
	resources := []endpoints.Resource{f.resource, namespaces, eventResource, logicalClusters}
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

func coreResource(kind, resource string, namespaced bool) endpoints.Resource {
	return endpoints.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kind), Resource: resource, Namespaced: namespaced}
}

// primaryReconciler syncs one primary object.
type primaryReconciler struct {
	syncer  *syncer.Syncer
	clients *endpoints.Workspaces
	store   *informer.Store
	// workspace is the published resource by its name in workspaces, served by its name at the endpoint.
	workspace, served endpoints.Resource
}

func (w *workspaces) newReconciler(clients *endpoints.Workspaces, found *served, events syncer.Events) (*primaryReconciler, error) {
	service, err := w.newServiceClient(found.related)
	if err != nil {
		return nil, err
	}
	config := w.syncerConfig()
	config.Service, config.Related, config.Events = &storeClient{service, w.serviceResource, w.copies.Store}, found.related, events
	return &primaryReconciler{clients: clients, workspace: w.workspaceResource, served: found.resource, syncer: syncer.New(config)}, nil
}

// Reconcile implements reconcile.TypedReconciler.
func (r *primaryReconciler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
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
