package cachedresources

import (
	"context"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Publisher has what is offered in the cache, for other shards to read. Its methods are not called at once for one offer.
type Publisher interface {
	// Inputs tell of offers (by their name and logical cluster) whose objects, or whose copies, may not be what they were.
	Inputs() []controller.Source
	// Publish makes the copies of an offer in the context's logical cluster those of the objects that it selects. What
	// cannot be reached is no error: the offer is looked at again.
	Publish(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource) (PublishResult, error)
	// Withdraw removes all copies. It returns false while they cannot be reached.
	Withdraw(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource) (done bool, err error)
	// Forget gives up what is kept for an offer that is no more.
	Forget(key controller.Request)
}

// PublishResult tells what became of copies.
type PublishResult struct {
	// Replicated tells whether there is any other shard to publish for.
	Replicated bool
	// Count is how many there are, if that is Known: it is not before the cache was heard of.
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

// publish returns how many copies there are of a number of objects: those themselves, if all shards that there are can
// read them where they are; what was said before, if that is not known.
func (c Config) publish(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource, objects int) (int, error) {
	if c.Publisher == nil {
		return objects, nil
	}
	result, err := c.Publisher.Publish(ctx, cachedResource, identity, resource)
	if err == nil && !result.Replicated {
		return objects, nil
	}
	if before := cachedResource.Status.ResourceCounts; !result.Known && before != nil {
		return before.Cache, err
	}
	return result.Count, err
}
