package syncagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/projection"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/publisher"
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
	reasonOrphaned   = "OrphanedCopies"
	reasonNoEndpoint = "NoConsumers"
)

// synchronizations runs at most one synchronization per publication, and stops it before its successor starts.
type synchronizations struct {
	*dependencies
	// described has an element while the description of the syncer's view may be out of date.
	described chan struct{}

	mu        sync.Mutex
	closed    bool
	endpoints map[string]*endpointConnection // nil until they are known
	// sliceProblem is why the slice does not list the endpoints; it is empty if the slice is valid.
	sliceProblem string
	running      map[types.UID]*synchronization
	// queue is the queue of the controller; it is nil until the controller runs.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// uids has the UIDs of running synchronizations by their keys: the request for a deleted object has its key only.
	uids map[types.NamespacedName]types.UID
}

func newSynchronizations(d *dependencies) *synchronizations {
	return &synchronizations{
		dependencies: d, described: make(chan struct{}, 1),
		running: map[types.UID]*synchronization{}, uids: map[types.NamespacedName]types.UID{},
	}
}

// Start implements manager.Runnable. It stops all synchronizations when the context ends.
func (s *synchronizations) Start(ctx context.Context) error {
	s.describeViews(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key := range maps.Clone(s.uids) {
		s.stop(key)
	}
	return nil
}

// Reconcile starts, replaces or stops the synchronization of a publication, and reports its status.
func (s *synchronizations) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p, err := s.reader.Get(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading PublishedResource %s: %w", request.Name, err)
	}
	condition, failure := s.sync(ctx, request.NamespacedName, p)
	if p.Object.GetDeletionTimestamp() == nil && condition.Reason != "" {
		condition.Type, condition.ObservedGeneration = syncagentv1alpha1.ConditionSyncing, p.Object.GetGeneration()
		err = s.reader.WriteStatus(ctx, p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
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
func (s *synchronizations) sync(ctx context.Context, key types.NamespacedName, p *publication.Publication) (metav1.Condition, error) {
	refused, err := s.refuse(ctx, p)
	if err != nil {
		return metav1.Condition{}, err
	}
	if refused != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop(key)
		return *refused, nil
	}
	service, workspace, err := resolve(ctx, s.serviceDiscovery, s.service, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if errors.Is(err, source.ErrNotServed) {
			s.stop(key)
		}
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNotServed, Message: "the service cluster does not serve the resource; see the condition SchemaReady"}, err
	}
	if s.closed {
		return metav1.Condition{}, nil
	}
	running := s.running[p.Object.GetUID()]
	if running == nil || !running.sameAs(p, service, workspace) {
		s.stop(key)
		running = s.start(key, p, service, workspace)
	}
	return running.condition(s.endpoints != nil, s.sliceProblem), nil
}

// refuse returns why a publication is not synced, or nil if it is. Without the intended filter, an invalid publication could sync too
// many objects. Several publications of one resource would all write the same objects.
func (s *synchronizations) refuse(ctx context.Context, p *publication.Publication) (*metav1.Condition, error) {
	switch {
	case !p.Syncs() || p.Object.GetDeletionTimestamp() != nil:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonDisabled, Message: "synchronization.enabled is false"}, nil
	case len(p.Invalid) > 0:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: publisher.ReasonInvalid, Message: p.Invalid.ToAggregate().Error()}, nil
	case p.SchemaName == "":
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonWaiting, Message: "objects are synced when there is an APIResourceSchema"}, nil
	}
	all, err := s.reader.List(ctx)
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
func (s *synchronizations) requests(ctx context.Context, object client.Object) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: dialects.Key(object)}}
	resource := publisher.ResourceOf(dialects.SchemaName(object))
	if resource == "" {
		return requests
	}
	others, err := s.reader.Find(ctx, func(_, schemaName string) bool { return publisher.ResourceOf(schemaName) == resource })
	if err != nil {
		s.log.Error(err, "Looking for PublishedResources of the same resource", "name", object.GetName())
	}
	for _, key := range others {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// setQueue is called when the controller starts.
func (s *synchronizations) setQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	return nil
}

// resolve finds the resource of a publication on both sides.
func resolve(ctx context.Context, discovery source.Discovery, reader client.Reader, p *publication.Publication) (service, workspace workspaces.Resource, err error) {
	definition, err := source.Definition(ctx, discovery, reader, p.Spec.Resource.APIGroup, p.Spec.Resource.Kind)
	if err != nil {
		return service, workspace, err
	}
	projected, err := projection.Project(definition, &p.Spec)
	if err != nil {
		return service, workspace, err
	}
	service, workspace = projection.Resources(definition, projected, &p.Spec)
	return service, workspace, nil
}

// start starts a synchronization. Callers must hold mu and must have stopped its predecessor.
func (s *synchronizations) start(key types.NamespacedName, p *publication.Publication, service, workspace workspaces.Resource) *synchronization {
	queue := s.queue // it has no limit, and at most one element for each key
	started := newSynchronization(s.dependencies, p, service, workspace, func() { queue.Add(reconcile.Request{NamespacedName: key}) })
	s.running[p.Object.GetUID()], s.uids[key] = started, p.Object.GetUID()
	started.start()
	s.describe()
	started.setEndpoints(s.endpoints)
	return started
}

// stop stops the synchronization with a key, if it exists, and returns when it has ended. Callers must hold mu.
func (s *synchronizations) stop(key types.NamespacedName) {
	uid, found := s.uids[key]
	if !found {
		return
	}
	s.running[uid].stop()
	s.describe()
	delete(s.running, uid)
	delete(s.uids, key)
}

// setEndpoints runs all synchronizations at the endpoints of a valid slice.
func (s *synchronizations) setEndpoints(ctx context.Context, urls []string) error {
	used, err := s.remembered.Add(ctx, urls)
	if err != nil {
		return err
	}
	for _, url := range used {
		if _, err := s.known.get(url); err != nil {
			return err
		}
	}
	current := map[string]*endpointConnection{}
	for _, url := range urls {
		endpoint, err := s.known.get(strings.TrimSuffix(url, "/"))
		if err != nil {
			return err
		}
		current[url] = endpoint
	}
	s.log.Info("The endpoints are", "urls", urls)
	s.known.setComplete(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints, s.sliceProblem = current, ""
	for _, running := range s.running {
		running.setEndpoints(current)
		running.orphans.trigger()
		running.changed()
	}
	return nil
}

// setSliceProblem sets why the endpoints are unknown. The previously known endpoints remain in use.
func (s *synchronizations) setSliceProblem(problem string) {
	s.log.Info("The endpoints are not known", "reason", problem)
	s.known.setComplete(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sliceProblem = problem
	for _, running := range s.running {
		running.changed()
	}
}

// condition returns the condition Syncing.
func (s *synchronization) condition(endpointsKnown bool, sliceProblem string) metav1.Condition {
	synced, err := s.copies.Status()
	switch {
	case err != nil:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonEndpoints, Message: "copies on the service cluster cannot be read"}
	case sliceProblem != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonEndpoints, Message: "the endpoints are not known: " + sliceProblem}
	case !synced || !endpointsKnown:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonStarting, Message: "objects are being read"}
	}
	endpoints := s.currentEndpoints()
	if len(endpoints) == 0 {
		return s.withOrphans(metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonNoEndpoint, Message: "no workspace binds the APIExport"})
	}
	var problems []string
	reason := reasonStarting
	var unresolved []string
	for _, w := range endpoints {
		unresolved = append(unresolved, w.unresolvedRelated()...)
		if err := w.status(); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", w.endpoint.URL, err))
			if !errors.Is(err, errNotSynced) {
				reason = reasonEndpoints
			}
		}
	}
	if len(problems) == 0 {
		slices.Sort(unresolved)
		return s.withOrphans(metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonSyncing, Message: strings.Join(slices.Compact(unresolved), "; ")})
	}
	slices.Sort(problems)
	return metav1.Condition{
		Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%d of %d endpoints are not ready: %s", len(problems), len(endpoints), strings.Join(problems, "; ")),
	}
}

// withOrphans adds orphans to the condition of a synchronization that is ready.
func (s *synchronization) withOrphans(condition metav1.Condition) metav1.Condition {
	if keys := s.orphans.found(); len(keys) > 0 {
		condition.Reason, condition.Message = reasonOrphaned, orphansMessage(len(keys), keys[0])
	}
	return condition
}
