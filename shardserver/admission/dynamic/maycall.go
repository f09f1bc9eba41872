package dynamic

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// MayCallWebhooks reports whether a request for a resource of the context's logical cluster may call webhooks: writes
// call those for admission, all requests those that convert objects. It reads from memory only, and does not
// evaluate rules of webhooks.
func (p *Plugins) MayCallWebhooks(ctx context.Context, resource schema.GroupResource, isWrite bool) bool {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return false
	}
	source, definition := cluster, resource.String()
	if p.config.Bound != nil {
		if bound, ok := p.config.Bound.Get(ctx, resource); ok {
			source, cluster, definition = bound.Export.Cluster, logicalcluster.BoundCRDs, string(bound.SchemaUID)
		}
	}
	if isWrite {
		for _, index := range p.webhookIndexes {
			if !index.isAbsent(ctx, source) {
				return true
			}
		}
	}
	object, err := p.custom.reader.Get(logicalcluster.With(ctx, cluster), "", definition)
	return err == nil && object.Spec.Conversion != nil && object.Spec.Conversion.Strategy == apiextensions.WebhookConverter
}
