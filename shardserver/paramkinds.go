package shardserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// resourceOf tells under which name the context's logical cluster serves a kind, or "" if it does not.
func resourceOf(registry *storage.Registry) func(context.Context, schema.GroupKind) (string, error) {
	return func(ctx context.Context, kind schema.GroupKind) (string, error) {
		resource, err := registry.ForKind(ctx, kind)
		if err != nil || resource == nil {
			return "", err
		}
		return resource.GVR.Resource, nil
	}
}
