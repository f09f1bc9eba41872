package dynamic

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// sourceOf returns the logical cluster whose webhooks and policies judge a request to one: that of the export if the
// resource is bound, else itself, never both. Who offers an API judges the objects of all who bind it; they cannot.
//
// What admission sees has been served, so the index of bindings knows of a resource that is bound.
func (p *Plugins) sourceOf(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) logicalcluster.Name {
	if p.config.Bound == nil {
		return cluster
	}
	if bound, ok := p.config.Bound.Get(ctx, a.GetResource().GroupResource()); ok {
		return bound.Export.Cluster
	}
	return cluster
}
