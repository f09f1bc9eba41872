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

// Foreseer tells what will become of bindings in a logical cluster that is about to begin: those of its types. A workspace
// is made with a third fewer writes if they need not be looked at again.
type Foreseer struct {
	cfg Config
}

// NewForeseer returns a Foreseer. Of the configuration it needs Registry, Exports and Definitions.
func NewForeseer(cfg Config) *Foreseer { return &Foreseer{cfg: cfg} }

// Foresee gives new bindings of a logical cluster that has nothing else the status that a pass would give them, and returns
// the locks that this status relies on, as they stand in the annotation of the LogicalCluster. It returns "" and leaves the
// bindings alone where it takes more than this to bind all of them.
func (f *Foreseer) Foresee(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) (string, error) {
	p := &pass{clusterController: &clusterController{cfg: f.cfg}, name: cluster, bindings: bindings, cluster: &corev1alpha1.LogicalCluster{}, locks: locks{}}
	for _, binding := range bindings {
		offer, err := p.resolve(ctx, binding)
		if err != nil {
			return "", err
		}
		if offer.facts.problem != nil {
			return "", nil
		}
		p.offers = append(p.offers, offer)
	}
	if ready, err := p.foreseeable(ctx); err != nil || !ready {
		return "", err
	}
	for _, offer := range p.offers {
		decide(offer.binding, offer.facts)
		claims.Judge(offer.binding)
	}
	return p.locks.String(), nil
}

// foreseeable tells whether every resource can be had and served.
func (p *pass) foreseeable(ctx context.Context) (bool, error) {
	for _, offer := range p.offers {
		if !p.locks.fit(offer.facts.resources, offer.binding.Name) {
			return false, nil
		}
		for _, resource := range offer.facts.resources {
			if !p.locks.take(resource.GroupResource, offer.binding.Name) {
				return false, nil
			}
		}
	}
	if err := p.judgeNames(ctx); err != nil {
		return false, err
	}
	for _, offer := range p.offers {
		for _, resource := range offer.facts.resources {
			if resource.conflict != "" {
				return false, nil
			}
			resource.established = definitions.CompiledIn(p.cfg.Registry, resource.GroupResource, resource.identity)
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

// awaitsBindings tells whether a logical cluster is still to get the bindings of its types. It was made with the locks of
// these, so that they are not given away before.
func awaitsBindings(cluster *corev1alpha1.LogicalCluster) bool {
	switch cluster.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling:
		return true
	case corev1alpha1.LogicalClusterPhaseInitializing:
		return slices.Contains(cluster.Status.Initializers, corev1alpha1.SystemAPIBindingsInitializer)
	}
	return false
}
