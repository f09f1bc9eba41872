package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsVisible reports whether the context's logical cluster serves a compiled-in resource, if the resource exists.
func (r *Registry) IsVisible(ctx context.Context, gr schema.GroupResource) bool {
	r.mu.RLock()
	isVisible := r.isVisible
	r.mu.RUnlock()
	return isVisible == nil || isVisible(ctx, gr)
}
