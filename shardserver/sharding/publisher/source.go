package publisher

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/shardserver/controller"
)

// ErrUnchanged is returned by Source.Desired if the object in the cache must stay as it is, or absent.
var ErrUnchanged = errors.New("the published object stays as it is")

// ErrAwaitsOthers is returned by Source.Desired, with the reason, if an object depends on objects of other shards that are not synced. As after
// any other error, the object is retried. But it does not keep the report of this shard from being complete: the other shards may wait for that
// in turn. Only sources of which the absence of an object proves nothing may return it.
var ErrAwaitsOthers = errors.New("objects of other shards are not synced")

// Source is one resource that this shard publishes.
type Source struct {
	// Resource is the published resource, which cacheserver/client.FindResource returns.
	Resource schema.GroupResource
	// Inputs are the inputs of Desired. They map to keys of published objects. A key without a name stands for all
	// objects of its logical cluster that List returns or that are published; with the wildcard for all of the source.
	Inputs []controller.Source
	// Desired returns the object to publish under a key in the logical cluster of the context, or nil for none. It may
	// be of the internal or the published version, and shared: the publisher copies it. Its name and namespace must be
	// those of the key. After an error other than ErrUnchanged it is retried, and the published object stays until
	// then.
	Desired func(ctx context.Context, key controller.Request) (runtime.Object, error)
	// List returns the keys of possible objects in the logical cluster of the context, or in all with the wildcard.
	// Without List, the keys of Inputs are used, and must have names.
	List func(ctx context.Context) ([]controller.Request, error)

	// refill is Desired for an object that a cache has lost (Restored.AwaitAll); nil if it stays absent.
	refill func(ctx context.Context, key controller.Request) (runtime.Object, error)
	// each is an input for the keys that allOf stands for; nil if no input maps to that.
	each *controller.Changes
}
