package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var offered = cachev1alpha1.Resource("clustercachedresources")

// Config configures a Publisher.
type Config struct {
	Registry *storage.Registry
	// Shard is the name of this shard.
	Shard string
	// Cache is written to; Informer has whether it is available, and its incarnation.
	Cache    *client.Client
	Informer *replica.Informer
	// Objects reads objects that are stored in another version than the published one.
	Objects dynamic.Interface
}

// Publisher implements cachedresources.Publisher. One replica of a shard uses it at a time.
type Publisher struct {
	cfg         Config
	shards      endpoints.AllShards
	changeQueue *changeQueue
	// epoch is incremented whenever the cache may have lost objects.
	epoch atomic.Uint64

	mu sync.Mutex
	// offers is what stands in the cache, by offer. An entry goes with its offer (Forget, Withdraw), and all when this
	// replica does not publish any more.
	offers map[controller.Key]*publishedState
	// followers see changes of objects, by the prefix of their storage. One goes with its last offer.
	watches map[string]*objectWatch
	// running is the context of Run; nil while this replica does not publish.
	running context.Context //nolint:containedctx // it is that of Run
	ending  sync.WaitGroup
}

var _ cachedresources.Publisher = &Publisher{}

// New returns a publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg: cfg, shards: endpoints.NewAllShards(cfg.Registry), changeQueue: newChangeQueue(),
		offers: map[controller.Key]*publishedState{}, watches: map[string]*objectWatch{},
	}
}

// Inputs implements cachedresources.Publisher: changes of what is offered, of what stands in the cache, and of the set of
// shards.
func (p *Publisher) Inputs() []controller.Input {
	return []controller.Input{
		{Resource: schema.GroupResource{Resource: "objects of clustercachedresources"}, Keys: controller.ObjectKey, Stream: p.changeQueue.stream},
		{Resource: schema.GroupResource{Resource: "published clustercachedresources"}, Keys: controller.ObjectKey, Stream: func(ctx context.Context) (watch.Interface, error) {
			p.epoch.Add(1) // it is asked for again when the cache may have lost anything
			return p.cfg.Informer.WatchPublished(ctx, offered)
		}},
	}
}

// Run watches the selected objects until the context ends.
func (p *Publisher) Run(ctx context.Context) {
	p.mu.Lock()
	p.running = ctx
	for _, f := range p.watches {
		p.start(f)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.running = nil
	clear(p.offers)
	clear(p.watches)
	p.mu.Unlock()
	p.ending.Wait()
}

// Publish implements cachedresources.Publisher.
func (p *Publisher) Publish(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource) (cachedresources.Published, error) {
	key := keyOf(offer)
	needed, err := p.needed(ctx, key)
	if apierrors.IsServiceUnavailable(err) {
		err = nil // another look follows when shards are known
	}
	if err != nil || !needed {
		return cachedresources.Published{}, err
	}
	p.watchObjects(key, resource)
	at := p.publishedState(key)
	known, err := p.look(ctx, at, p.cacheResource(offer, identity))
	if err == nil && known {
		err = p.bring(ctx, at, offer, resource)
	}
	return cachedresources.Published{Elsewhere: true, Copies: len(at.copies), Known: at.copies != nil}, p.failed(ctx, at, err)
}

// Withdraw implements cachedresources.Publisher.
func (p *Publisher) Withdraw(ctx context.Context, offer *cachev1alpha1.ClusterCachedResource) (done bool, err error) {
	key := keyOf(offer)
	if offer.Status.IdentityHash == "" { // nothing was published without one
		p.Forget(key)
		return true, nil
	}
	needed, err := p.needed(ctx, key)
	if apierrors.IsServiceUnavailable(err) {
		return false, nil // something may have been published before this process began
	}
	if err != nil {
		return false, err
	}
	if needed {
		at := p.publishedState(key)
		known, err := p.look(ctx, at, p.cacheResource(offer, offer.Status.IdentityHash))
		if err == nil && known {
			err = p.withdraw(ctx, at)
		}
		if err != nil || !known {
			return false, p.failed(ctx, at, err)
		}
	}
	p.Forget(key)
	return true, nil
}

// Forget implements cachedresources.Publisher.
func (p *Publisher) Forget(key controller.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.offers, key)
	for prefix, f := range p.watches {
		if f.remove(key) {
			delete(p.watches, prefix)
		}
	}
}

// needed returns whether there are other shards, or published objects. It fails with ServiceUnavailable while other
// shards are unknown.
func (p *Publisher) needed(ctx context.Context, key controller.Key) (bool, error) {
	p.mu.Lock()
	at := p.offers[key]
	p.mu.Unlock()
	if at != nil && at.read {
		return true, nil
	}
	all, err := p.shards.List(ctx)
	for _, shard := range all {
		if shard.Name != p.cfg.Shard {
			return true, err
		}
	}
	return false, err
}

// failed drops errors of connections, which are retried when the cache is back, and makes the next call read the cache
// again after other errors.
func (p *Publisher) failed(ctx context.Context, at *publishedState, err error) error {
	if err == nil {
		return nil
	}
	at.read = at.read && apierrors.IsServiceUnavailable(err)
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		klog.FromContext(ctx).V(2).Info("Publishing cached resources failed, will retry", "resource", at.resource, "cluster", at.cluster, "reason", err)
		at.read = false
		return nil
	}
	return fmt.Errorf("publishing %s: %w", at.resource, err)
}

// place returns where the objects of an offer stand in the cache.
func (p *Publisher) cacheResource(offer *cachev1alpha1.ClusterCachedResource, identity string) cacheResource {
	gvr := schema.GroupVersionResource{Group: offer.Spec.Group, Version: offer.Spec.Version, Resource: offer.Spec.Resource}
	return cacheResource{client.CachedResource(gvr, identity), logicalcluster.Of(offer)}
}

func keyOf(offer *cachev1alpha1.ClusterCachedResource) controller.Key {
	return controller.Key{Cluster: logicalcluster.Of(offer), Name: offer.Name}
}
