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

// StatusPrecomputer tells what will become of bindings in a logical cluster that is about to begin: those of its types. A workspace
// is made with a third fewer writes if they need not be looked at again.
type StatusPrecomputer struct {
	cfg Config
}

// NewStatusPrecomputer returns a Foreseer. Of the configuration it needs Registry, Exports and Definitions.
func NewStatusPrecomputer(cfg Config) *StatusPrecomputer { return &StatusPrecomputer{cfg: cfg} }

// Precompute gives new bindings of a logical cluster that has nothing else the status that a pass would give them, and returns
// the locks that this status relies on, as they stand in the annotation of the LogicalCluster. It returns "" and leaves the
// bindings alone where it takes more than this to bind all of them.
func (f *StatusPrecomputer) Precompute(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) (string, error) {
	s := &scope{clusterController: &clusterController{cfg: f.cfg}, name: cluster, bindings: bindings, cluster: &corev1alpha1.LogicalCluster{}, reservations: reservations{}}
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

// allocateAll tells whether every resource can be had and served.
func (p *scope) allocateAll(ctx context.Context) (bool, error) {
	for _, state := range p.states {
		if !p.reservations.fits(state.inputs.resources, state.binding.Name) {
			return false, nil
		}
		for _, resource := range state.inputs.resources {
			if !p.reservations.acquire(resource.GroupResource, state.binding.Name) {
				return false, nil
			}
		}
	}
	if err := p.detectNameConflicts(ctx); err != nil {
		return false, err
	}
	for _, state := range p.states {
		for _, resource := range state.inputs.resources {
			if resource.nameConflict != "" {
				return false, nil
			}
			resource.established = definitions.IsCompiledIn(p.cfg.Registry, resource.GroupResource, resource.identity)
			if resource.established {
				continue
			}
			var err error
			if resource.established, err = p.cfg.Definitions.Ensure(ctx, resource.schema); definitions.IsInvalid(err) {
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

// initialBindingsPending tells whether a logical cluster is still to get the bindings of its types. It was made with the locks of
// these, so that they are not given away before.
func initialBindingsPending(cluster *corev1alpha1.LogicalCluster) bool {
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling:
		return true
	case corev1alpha1.LogicalClusterPhaseInitializing:
		return slices.Contains(cluster.Status.Initializers, corev1alpha1.SystemAPIBindingsInitializer)
	}
	return false
}
