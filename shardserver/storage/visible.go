package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Shows reports whether the context's logical cluster serves a compiled-in resource, if the resource exists.
func (r *Registry) Shows(ctx context.Context, gr schema.GroupResource) bool {
	r.mu.RLock()
	visible := r.visible
	r.mu.RUnlock()
	return visible == nil || visible(ctx, gr)
}
