package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/publisher"
	"github.com/atoll-dev/atoll/syncagent/servers"
	"github.com/atoll-dev/atoll/syncagent/source"
)

// Reasons of the condition Syncing and of events.
const (
	reasonSyncing    = "Syncing"
	reasonDisabled   = "Disabled"
	reasonStarting   = "Starting"
	reasonWaiting    = "WaitingForSchema"
	reasonEndpoints  = "EndpointsNotReady"
	reasonNotServed  = "ResourceNotServed"
	reasonNoEndpoint = "NoConsumers"
)

// Controller runs at most one publicationSync per publication, and stops it before its successor starts.
type Controller struct {
	shared *shared
	// changed is set when the description of the syncer's view may be out of date.
	changed background.Signal

	mu        sync.Mutex
	closed    bool
	endpoints map[string]*workspaces.Endpoint // nil until they are known
	// sliceProblem is why the slice does not list the endpoints; it is empty if the slice is valid.
	sliceProblem string
	running      map[types.UID]*publicationSync
	// queue is the queue of the controller; it is nil until the controller runs.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// uids has the UIDs of running synchronizations by their keys: the request for a deleted object has its key only.
	uids map[types.NamespacedName]types.UID
}

func newController(d *shared) *Controller {
	return &Controller{
		shared: d, changed: background.NewSignal(),
		running: map[types.UID]*publicationSync{}, uids: map[types.NamespacedName]types.UID{},
	}
}

// Start implements manager.Runnable. It stops all synchronizations when the context ends.
func (c *Controller) Start(ctx context.Context) error {
	c.describeViews(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for key := range maps.Clone(c.uids) {
		c.stop(key)
	}
	return nil
}

// Reconcile starts, replaces or stops the synchronization of a publication, and reports its status.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p, err := c.shared.reader.Get(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stop(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading PublishedResource %s: %w", request.Name, err)
	}
	condition, failure := c.apply(ctx, request.NamespacedName, p)
	if p.Object.GetDeletionTimestamp() == nil && condition.Reason != "" {
		condition.Type, condition.ObservedGeneration = syncagentv1alpha1.ConditionSyncing, p.Object.GetGeneration()
		err = c.shared.reader.WriteStatus(ctx, p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
			before := meta.FindStatusCondition(status.Conditions, condition.Type)
			if condition.Reason == reasonStarting && before != nil && before.ObservedGeneration == condition.ObservedGeneration {
				return // a restart does not change the condition
			}
			meta.SetStatusCondition(&status.Conditions, condition)
		})
		if apierrors.IsNotFound(err) {
			err = nil // the next request reconciles its deletion
		}
	}
	return reconcile.Result{}, errors.Join(failure, err)
}

// sync starts, replaces or stops the synchronization of a publication. It sends requests without holding mu, so that a server that does
// not respond does not block the others.
func (c *Controller) apply(ctx context.Context, key types.NamespacedName, p *publication.Publication) (metav1.Condition, error) {
	refused, err := c.refuse(ctx, p)
	if err != nil {
		return metav1.Condition{}, err
	}
	if refused != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stop(key)
		return *refused, nil
	}
	service, workspace, err := servers.Resolve(ctx, c.shared.serviceDiscovery, c.shared.service, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if errors.Is(err, source.ErrNotServed) {
			c.stop(key)
		}
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNotServed, Message: "the service cluster does not serve the resource; see the condition SchemaReady"}, err
	}
	if c.closed {
		return metav1.Condition{}, nil
	}
	running := c.running[p.Object.GetUID()]
	if running == nil || !running.sameAs(p, service, workspace) {
		c.stop(key)
		running = c.start(key, p, service, workspace)
	}
	return running.condition(c.endpoints != nil, c.sliceProblem), nil
}

// refuse returns why a publication is not synced, or nil if it is. Without the intended filter, an invalid publication could sync too
// many objects. Several publications of one resource would all write the same objects.
func (c *Controller) refuse(ctx context.Context, p *publication.Publication) (*metav1.Condition, error) {
	switch {
	case !p.Syncs() || p.Object.GetDeletionTimestamp() != nil:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonDisabled, Message: "synchronization.enabled is false"}, nil
	case len(p.Invalid) > 0:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: publisher.ReasonInvalid, Message: p.Invalid.ToAggregate().Error()}, nil
	case p.SchemaName == "":
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonWaiting, Message: "objects are synced when there is an APIResourceSchema"}, nil
	}
	all, err := c.shared.reader.List(ctx)
	if err != nil {
		return nil, err
	}
	exported, _ := publisher.SelectSchemas(all)
	first := exported[publisher.ResourceOf(p.SchemaName)]
	if first == nil || first.Object.GetUID() == p.Object.GetUID() {
		return nil, nil
	}
	condition := publisher.DuplicateCondition(p, first)
	return &condition, nil
}

// requests returns the requests for a changed PublishedResource: one for itself, and one for each other that publishes the same resource.
func (c *Controller) requests(ctx context.Context, object client.Object) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: dialects.Key(object)}}
	resource := publisher.ResourceOf(dialects.SchemaName(object))
	if resource == "" {
		return requests
	}
	others, err := c.shared.reader.Find(ctx, func(_, schemaName string) bool { return publisher.ResourceOf(schemaName) == resource })
	if err != nil {
		c.shared.log.Error(err, "Failed to find PublishedResources of the same resource", "name", object.GetName())
	}
	for _, key := range others {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// setQueue is called when the controller starts.
func (c *Controller) setQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	return nil
}

// start starts a synchronization. Callers must hold mu and must have stopped its predecessor.
func (c *Controller) start(key types.NamespacedName, p *publication.Publication, service, workspace workspaces.Resource) *publicationSync {
	queue := c.queue // it has no limit, and at most one element for each key
	started := newPublicationSync(c.shared, p, service, workspace, func() { queue.Add(reconcile.Request{NamespacedName: key}) })
	c.running[p.Object.GetUID()], c.uids[key] = started, p.Object.GetUID()
	started.start()
	c.changed.Set()
	started.setEndpoints(c.endpoints)
	return started
}

// stop stops the synchronization with a key, if it exists, and returns when it has ended. Callers must hold mu.
func (c *Controller) stop(key types.NamespacedName) {
	uid, found := c.uids[key]
	if !found {
		return
	}
	c.running[uid].stop()
	c.changed.Set()
	delete(c.running, uid)
	delete(c.uids, key)
}

// setEndpoints runs all synchronizations at the endpoints of a valid slice.
func (c *Controller) setEndpoints(ctx context.Context, urls []string) error {
	current, err := c.shared.known.Use(ctx, urls)
	if err != nil {
		return err
	}
	c.shared.log.Info("The endpoints are", "urls", urls)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints, c.sliceProblem = current, ""
	for _, running := range c.running {
		running.setEndpoints(current)
		running.orphans.Trigger()
		running.changed()
	}
	return nil
}

// setSliceProblem sets why the endpoints are unknown. The previously known endpoints remain in use.
func (c *Controller) setSliceProblem(problem string) {
	c.shared.log.Info("The endpoints are not known", "reason", problem)
	c.shared.known.SetIncomplete()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sliceProblem = problem
	for _, running := range c.running {
		running.changed()
	}
}
