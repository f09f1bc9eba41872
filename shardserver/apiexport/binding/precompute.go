package binding

import (
	"context"
	"slices"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
)

// StatusPrecomputer computes the status of the initial bindings of a new logical cluster, which come from its workspace
// types, so that they are created with their final status and need no reconciliation.
type StatusPrecomputer struct {
	cfg Config
}

// NewStatusPrecomputer returns a StatusPrecomputer. It uses Registry, Exports and Definitions of the configuration.
func NewStatusPrecomputer(cfg Config) *StatusPrecomputer { return &StatusPrecomputer{cfg: cfg} }

// Precompute sets the status of new bindings of an otherwise empty logical cluster as a reconciliation would, and returns
// the value of the annotation of the LogicalCluster with their reservations. It returns "" and leaves the bindings
// unchanged unless all of them can be bound at once.
func (sp *StatusPrecomputer) Precompute(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) (string, error) {
	s := &clusterState{clusterController: &clusterController{cfg: sp.cfg}, name: cluster, bindings: bindings, cluster: &corev1alpha1.LogicalCluster{}, reservations: reservations{}}
	for _, binding := range bindings {
		state, err := s.resolve(ctx, binding)
		if err != nil {
			return "", err
		}
		if state.inputs.problem != nil {
			return "", nil
		}
		s.states = append(s.states, state)
	}
	if ready, err := s.allocateAll(ctx); err != nil || !ready {
		return "", err
	}
	for _, state := range s.states {
		decide(state.binding, state.inputs)
		claims.UpdateStatus(state.binding)
	}
	return s.reservations.String(), nil
}

// allocateAll acquires the resources of all bindings and reports whether every one of them can be bound and served.
func (s *clusterState) allocateAll(ctx context.Context) (bool, error) {
	for _, state := range s.states {
		if !s.reservations.fits(state.inputs.resources, state.binding.Name) {
			return false, nil
		}
		for _, resource := range state.inputs.resources {
			if !s.reservations.acquire(resource.GroupResource, state.binding.Name) {
				return false, nil
			}
		}
	}
	if err := s.detectNameConflicts(ctx); err != nil {
		return false, err
	}
	for _, state := range s.states {
		for _, resource := range state.inputs.resources {
			if resource.nameConflict != "" {
				return false, nil
			}
			resource.established = definitions.IsCompiledIn(s.cfg.Registry, resource.GroupResource, resource.identity)
			if resource.established {
				continue
			}
			var err error
			if resource.established, err = s.cfg.Definitions.Ensure(ctx, resource.schema); definitions.IsInvalid(err) {
				return false, nil
			} else if err != nil {
				return false, err
			}
			if !resource.established {
				return false, nil
			}
		}
	}
	return true, nil
}

// areInitialBindingsPending reports whether the initial bindings of a logical cluster may not exist yet. Their reservations
// were created with the logical cluster and must not be pruned before.
func areInitialBindingsPending(cluster *corev1alpha1.LogicalCluster) bool {
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling:
		return true
	case corev1alpha1.LogicalClusterPhaseInitializing:
		return slices.Contains(cluster.Status.Initializers, corev1alpha1.SystemAPIBindingsInitializer)
	}
	return false
}
