package dynamic

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// sourceOf returns the logical cluster whose webhooks and policies apply to a request: that of the export if the
// resource is bound, else that of the request, never both. The provider of an API admits the objects of all consumers;
// consumers cannot.
//
// A request that reaches admission has been routed to its storage, so the index of bindings has the resource if it is
// bound.
func (p *Plugins) sourceOf(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) logicalcluster.Name {
	if p.config.Bound == nil {
		return cluster
	}
	if bound, ok := p.config.Bound.Get(ctx, a.GetResource().GroupResource()); ok {
		return bound.Export.Cluster
	}
	return cluster
}
