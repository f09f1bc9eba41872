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
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var clusterCachedResources = cachev1alpha1.Resource("clustercachedresources")

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
	cfg Config
	// changes are the ClusterCachedResources whose objects have changed.
	changes *controller.Changes
	// epoch is incremented whenever the cache may have lost objects.
	epoch atomic.Uint64

	mu sync.Mutex
	// states are the published states by ClusterCachedResource. An entry is removed with its ClusterCachedResource
	// (Forget, Withdraw), and all are when this replica stops publishing.
	states map[controller.Request]*publishedState
	// watches are by the prefix of their storage. One ends with its last ClusterCachedResource.
	watches map[string]*objectWatch
	// runCtx is the context of Run; nil while this replica does not publish.
	runCtx     context.Context // the context of Run, for watches that start later
	watchGroup sync.WaitGroup
}

var _ cachedresources.Publisher = &Publisher{}

// New returns a publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg: cfg, changes: controller.NewChanges(nil),
		states: map[controller.Request]*publishedState{}, watches: map[string]*objectWatch{},
	}
}

// Inputs implements cachedresources.Publisher: changes of selected objects, of published objects, and of the set of
// shards.
func (p *Publisher) Inputs() []controller.Source {
	return []controller.Source{
		p.changes.Source(schema.GroupResource{Resource: "objects of clustercachedresources"}),
		{Resource: schema.GroupResource{Resource: "published clustercachedresources"}, MapFunc: controller.RequestForObject, WatchFunc: func(ctx context.Context) (watch.Interface, error) {
			p.epoch.Add(1) // the watch is restarted when the cache may have lost objects
			return p.cfg.Informer.WatchPublished(ctx, clusterCachedResources)
		}},
	}
}

// Run watches the selected objects until the context ends.
func (p *Publisher) Run(ctx context.Context) {
	p.mu.Lock()
	p.runCtx = ctx
	for _, f := range p.watches {
		p.startWatch(f)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.runCtx = nil
	clear(p.states)
	clear(p.watches)
	p.mu.Unlock()
	p.watchGroup.Wait()
}

// Publish implements cachedresources.Publisher.
func (p *Publisher) Publish(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource, identity string, resource *storage.Resource) (cachedresources.PublishResult, error) {
	key := keyOf(cachedResource)
	p.watchObjects(key, resource)
	state := p.getState(key)
	known, err := p.refreshState(ctx, state, p.cacheResourceFor(cachedResource, identity))
	if err == nil && known {
		err = p.syncObjects(ctx, state, cachedResource, resource)
	}
	return cachedresources.PublishResult{Count: len(state.objects), Known: state.objects != nil}, p.handleError(ctx, state, err)
}

// Withdraw implements cachedresources.Publisher.
func (p *Publisher) Withdraw(ctx context.Context, cachedResource *cachev1alpha1.ClusterCachedResource) (done bool, err error) {
	key := keyOf(cachedResource)
	if cachedResource.Status.IdentityHash == "" { // nothing is published without an identity
		p.Forget(key)
		return true, nil
	}
	state := p.getState(key)
	known, err := p.refreshState(ctx, state, p.cacheResourceFor(cachedResource, cachedResource.Status.IdentityHash))
	if err == nil && known {
		err = p.withdraw(ctx, state)
	}
	if err != nil || !known {
		return false, p.handleError(ctx, state, err)
	}
	p.Forget(key)
	return true, nil
}

// Forget implements cachedresources.Publisher.
func (p *Publisher) Forget(key controller.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.states, key)
	for prefix, f := range p.watches {
		if f.remove(key) {
			delete(p.watches, prefix)
		}
	}
}

// handleError drops errors of connections, which are retried when the cache is back, and makes the next call read the
// cache again after other errors.
func (p *Publisher) handleError(ctx context.Context, state *publishedState, err error) error {
	if err == nil {
		return nil
	}
	state.loaded = state.loaded && apierrors.IsServiceUnavailable(err)
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		klog.FromContext(ctx).V(2).Info("Failed to publish cached resources, will retry", "resource", state.resource, "cluster", state.cluster, "err", err)
		state.loaded = false
		return nil
	}
	return fmt.Errorf("publishing %s: %w", state.resource, err)
}

// cacheResourceFor returns the resource under which the objects of a ClusterCachedResource are published.
func (p *Publisher) cacheResourceFor(cachedResource *cachev1alpha1.ClusterCachedResource, identity string) cacheResource {
	gvr := schema.GroupVersionResource{Group: cachedResource.Spec.Group, Version: cachedResource.Spec.Version, Resource: cachedResource.Spec.Resource}
	return cacheResource{client.CachedResource(gvr, identity), logicalcluster.Of(cachedResource)}
}

func keyOf(cachedResource *cachev1alpha1.ClusterCachedResource) controller.Request {
	return controller.Request{ClusterName: logicalcluster.Of(cachedResource), Name: cachedResource.Name}
}
