package binding

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// reconcile observes a logical cluster, resolves the exports of its bindings, allocates their resources, ensures the
// definitions that serve them, and writes each status once.
func (c *clusterController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	s, err := c.observe(ctx, key.ClusterName)
	if err != nil {
		return controller.Result{}, err
	}
	if s.cluster == nil && len(s.bindings) == 0 {
		return controller.Result{}, nil
	}
	var errs []error
	for _, binding := range s.bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		state, err := s.resolve(ctx, binding)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.states = append(s.states, state)
	}
	requeueAfter, err := s.allocate(ctx)
	if err != nil {
		return controller.Result{}, errors.Join(append(errs, err)...)
	}
	if err := s.detectNameConflicts(ctx); err != nil {
		return controller.Result{}, err
	}
	if err := s.detectChangedKinds(ctx); err != nil {
		return controller.Result{}, err
	}
	errs = append(errs, s.ensureDefinitions(ctx)...)
	errs = append(errs, s.writeStatuses(ctx)...)
	return controller.Result{RequeueAfter: requeueAfter}, errors.Join(errs...)
}

// allocate prunes the reservations, reserves the resources of each binding that no other owner has, and writes changed
// reservations. It returns the time until the next reservation expires, or zero.
func (s *clusterState) allocate(ctx context.Context) (time.Duration, error) {
	if s.cluster == nil {
		return 0, nil
	}
	stored, err := parseReservations(s.cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey])
	s.reservations = stored.clone()
	if err != nil { // missing or invalid
		s.reservations = s.initialReservations()
	}
	established := map[string]bool{}
	for _, definition := range s.definitions {
		established[definition.Name] = apiextensions.IsCRDConditionTrue(definition, apiextensions.Established)
	}
	deleting := s.cluster.DeletionTimestamp != nil
	var requeueAfter time.Duration
	// A cluster that is being deleted needs no pruning; one that awaits its initial bindings holds reservations for them.
	if !deleting && !areInitialBindingsPending(s.cluster) {
		requeueAfter, err = s.reservations.prune(pruneInputs{definitions: established, exists: s.newBindingExistsFunc(ctx), now: s.cfg.Clock.Now()})
		if err != nil {
			return 0, err
		}
	}
	for _, state := range s.states {
		if !s.reservations.fits(state.inputs.resources, state.binding.Name) {
			state.inputs.problem, state.inputs.resources = tooManyResources(len(state.inputs.resources)), nil
		}
		for _, resource := range state.inputs.resources {
			if !s.reservations.acquire(resource.GroupResource, state.binding.Name) {
				resource.reservedBy = s.reservations[resource.String()].describeOwner(resource.String())
			}
		}
	}
	if stored != nil && s.reservations.equal(stored) {
		return requeueAfter, nil
	}
	if stored == nil && deleting && len(s.reservations) == 0 {
		return 0, nil
	}
	return requeueAfter, s.writeReservations(ctx)
}

// initialReservations reserves each bound resource for its binding.
func (s *clusterState) initialReservations() reservations {
	initial := reservations{}
	for _, binding := range s.bindings {
		for _, bound := range binding.Status.BoundResources {
			initial.acquire(schema.GroupResource{Group: bound.Group, Resource: bound.Resource}, binding.Name)
		}
	}
	return initial
}

// newBindingExistsFunc returns a function that reports whether a binding exists. It confirms absence with a consistent read,
// because a pruned reservation may be acquired by another owner.
func (s *clusterState) newBindingExistsFunc(ctx context.Context) func(string) (bool, error) {
	return func(name string) (bool, error) {
		if slices.ContainsFunc(s.bindings, func(binding *apisv1alpha2.APIBinding) bool { return binding.Name == name }) {
			return true, nil
		}
		_, err := s.clusterController.bindings.GetLatest(ctx, "", name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
}

// ensureDefinitions ensures a definition for each resource that the binding may bind.
func (s *clusterState) ensureDefinitions(ctx context.Context) (errs []error) {
	if s.cluster == nil {
		return nil
	}
	for _, state := range s.states {
		for _, resource := range state.inputs.resources {
			if resource.reservedBy != "" || resource.nameConflict != "" || resource.invalid != nil {
				continue
			}
			if err := s.ensureDefinition(ctx, resource); definitions.IsInvalid(err) {
				resource.invalid = err
			} else if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// ensureDefinition sets resource.established, and registers the logical cluster as a waiter if that is false.
func (s *clusterState) ensureDefinition(ctx context.Context, resource *exportedResource) error {
	if definitions.IsCompiledIn(s.cfg.Registry, resource.GroupResource, resource.identity) {
		resource.established = true
		return nil
	}
	established, err := s.cfg.Definitions.Ensure(ctx, resource.schema)
	if err == nil && !established {
		// An event after addWaiter requeues this logical cluster. The second call covers an event before it.
		s.addWaiter(resource.schema.UID, s.name)
		established, err = s.cfg.Definitions.Ensure(ctx, resource.schema)
	}
	resource.established = established
	return err
}
