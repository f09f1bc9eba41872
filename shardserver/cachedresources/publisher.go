package cachedresources

import (
	"context"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Publisher publishes the selected objects in the cache. Its methods are not called concurrently for one
// ClusterCachedResource.
type Publisher interface {
	// Inputs map events to the ClusterCachedResources whose selected or published objects may have changed.
	Inputs() []controller.Source
	// Publish publishes the selected objects of a ClusterCachedResource in the context's logical cluster. An unavailable
	// cache is not an error: the ClusterCachedResource is enqueued again when it is back.
	Publish(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource) (PublishResult, error)
	// Withdraw deletes all published objects. It returns false while the cache is unavailable.
	Withdraw(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource) (done bool, err error)
	// Forget drops the state of a deleted ClusterCachedResource.
	Forget(key controller.Request)
}

// PublishResult is the result of Publish.
type PublishResult struct {
	// Count is the number of published objects, if Known: it is unknown until the cache was read.
	Count int
	Known bool
}

// publisherInputs returns the inputs of a publisher, if there is one.
func (c Config) publisherInputs() []controller.Source {
	if c.Publisher == nil {
		return nil
	}
	return c.Publisher.Inputs()
}

func (c Config) forget(key controller.Request) {
	if c.Publisher != nil {
		c.Publisher.Forget(key)
	}
}

// publish returns the number of published objects: objects itself without a cache, as everybody then reads the originals,
// and the previous number if the current one is unknown.
func (c Config) publish(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource, objects int) (int, error) {
	if c.Publisher == nil {
		return objects, nil
	}
	result, err := c.Publisher.Publish(ctx, cachedResource, identity, resource)
	if before := cachedResource.Status.ResourceCounts; !result.Known && before != nil {
		return before.Cache, err
	}
	return result.Count, err
}
