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
	Inputs() []controller.Input
	// Publish makes the copies of an offer in the context's logical cluster those of the objects that it selects. What
	// cannot be reached is no error: the offer is looked at again.
	Publish(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource) (Published, error)
	// Withdraw removes all copies. It returns false while they cannot be reached.
	Withdraw(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource) (done bool, err error)
	// Forget gives up what is kept for an offer that is no more.
	Forget(key controller.Key)
}

// Published tells what became of copies.
type Published struct {
	// Elsewhere tells whether there is any other shard to publish for.
	Elsewhere bool
	// Copies is how many there are, if that is Known: it is not before the cache was heard of.
	Copies int
	Known  bool
}

// published returns the inputs of a publisher, if there is one.
func (c Config) published() []controller.Input {
	if c.Publisher == nil {
		return nil
	}
	return c.Publisher.Inputs()
}

func (c Config) forget(key controller.Key) {
	if c.Publisher != nil {
		c.Publisher.Forget(key)
	}
}

// publish returns how many copies there are of a number of objects: those themselves, if all shards that there are can
// read them where they are; what was said before, if that is not known.
func (c Config) publish(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource, objects int) (int, error) {
	if c.Publisher == nil {
		return objects, nil
	}
	published, err := c.Publisher.Publish(ctx, offer, identity, resource)
	if err == nil && !published.Elsewhere {
		return objects, nil
	}
	if before := offer.Status.ResourceCounts; !published.Known && before != nil {
		return before.Cache, err
	}
	return published.Copies, err
}
