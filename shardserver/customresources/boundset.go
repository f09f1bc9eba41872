package customresources

import (
	"context"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// Bound is a resource that a logical cluster binds, and the definition that says what it looks like.
type Bound struct {
	bindings.BoundResource
	// Definition is shared with the watch cache: read-only.
	Definition *apiextensionsinternal.CustomResourceDefinition
}

// Bound returns what the context's logical cluster binds and can be served, but for what is served compiled in. It sees
// every binding whose status was acknowledged before.
func (c *Catalog) Bound(ctx context.Context) ([]Bound, error) {
	if err := c.Bindings.Refresh(ctx); err != nil {
		return nil, err
	}
	var all []Bound
	for _, b := range c.Bindings.List(ctx) {
		if c.shadowed(ctx, b.GroupResource) || !(b.Virtual || c.stored(b.Resource)) {
			continue
		}
		c.mu.RLock()
		known := c.schemas[b.SchemaUID]
		c.mu.RUnlock()
		if known == nil {
			if err := c.readSchema(ctx, b.GroupResource, b.SchemaUID); err != nil && !apierrors.IsServiceUnavailable(err) {
				return nil, err
			}
			c.mu.RLock()
			known = c.schemas[b.SchemaUID]
			c.mu.RUnlock()
		}
		if known.servable() && known.resource == b.GroupResource {
			all = append(all, Bound{b, known.object})
		}
	}
	return all, nil
}
