package publisher

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/controller"
)

// ErrUnchanged is what Source.Wanted returns when the object shall stay in the cache as it is, or not be there if it is
// not.
var ErrUnchanged = errors.New("what is published stays as it is")

// Source is one resource that this shard publishes.
type Source struct {
	// Resource is what stands in the cache; cacheserver/client.Find knows it.
	Resource schema.GroupResource
	// Inputs are what Wanted reads. Their keys are those of published objects. A key without a name stands for all objects
	// of its logical cluster that List knows, or that are published.
	Inputs []controller.Input
	// Wanted returns the object to be published under a key, in whose logical cluster the context is, or nil for none. It
	// may be of the internal or the published version, and shared: it is copied. It must have name and namespace of the
	// key. An error other than ErrUnchanged is tried again, and what is published stays until then.
	Wanted func(ctx context.Context, key controller.Key) (runtime.Object, error)
	// List returns the keys that there may be objects for in the logical cluster of the context, or in all with the
	// wildcard. Without it, Inputs are asked, and must have no keys without a name.
	List func(ctx context.Context) ([]controller.Key, error)
}
