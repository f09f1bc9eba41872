package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Shows tells whether the context's logical cluster shows a resource that is compiled in. It does not tell whether
// there is such a resource.
func (r *Registry) Shows(ctx context.Context, gr schema.GroupResource) bool {
	r.mu.RLock()
	visible := r.visible
	r.mu.RUnlock()
	return visible == nil || visible(ctx, gr)
}
