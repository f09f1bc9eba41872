package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// startTimeout bounds the wait of controllers for their sources at the start.
const startTimeout = 10 * time.Second

// origin identifies a stream of events. Controllers share one informer per origin.
type origin struct {
	resource schema.GroupResource
	// remote selects replicas of other shards.
	remote bool
	// customSource is a source with a watch function of its own; nil for shared origins.
	customSource *Source
}

// origins returns the origins of a source.
func (s *Source) origins(registry *storage.Registry) []origin {
	if s.WatchFunc != nil {
		return []origin{{resource: s.Resource, customSource: s}}
	}
	var origins []origin
	if !registry.IsRemoteOnly(s.Resource) {
		origins = append(origins, origin{resource: s.Resource})
	}
	if s.Global {
		origins = append(origins, origin{resource: s.Resource, remote: true})
	}
	return origins
}

// watch starts a watch with initial events.
func (o origin) watch(ctx context.Context, registry *storage.Registry) (watch.Interface, error) {
	switch {
	case o.customSource != nil:
		return o.customSource.WatchFunc(ctx)
	case o.remote:
		return registry.WatchRemote(ctx, o.resource)
	}
	resource, err := registry.Get(o.resource)
	if err != nil {
		return nil, err
	}
	return storage.WatchAll(ctx, resource)
}

// installed reports whether the resource can be watched.
func (o origin) installed(registry *storage.Registry) bool {
	if o.customSource != nil || o.remote {
		return true
	}
	_, err := registry.Get(o.resource)
	return err == nil
}

func (o origin) list(ctx context.Context, registry *storage.Registry) ([]runtime.Object, error) {
	if !o.installed(registry) {
		return nil, nil
	}
	objects, err := informer.List[runtime.Object](ctx, func(ctx context.Context) (watch.Interface, error) { return o.watch(ctx, registry) })
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", o.resource, err)
	}
	return objects, nil
}

// ForEachRequest calls a function with the requests for all existing objects.
func (s *Source) ForEachRequest(ctx context.Context, registry *storage.Registry, fn func(Request)) error {
	for _, origin := range s.origins(registry) {
		objects, err := origin.list(ctx, registry)
		if err != nil {
			return err
		}
		for _, object := range objects {
			for _, req := range s.MapFunc(watch.Event{Type: watch.Added, Object: object}) {
				fn(req)
			}
		}
	}
	return nil
}

// consumer is one source of a controller.
type consumer struct {
	*runningController
	source *Source
}

func (c consumer) enqueue(event watch.EventType, object runtime.Object) {
	for _, req := range c.source.MapFunc(watch.Event{Type: event, Object: object}) {
		c.Add(req)
	}
}

// sharedInformer is the informer of one origin with the controllers that it serves.
type sharedInformer struct {
	origin
	registry  *storage.Registry
	consumers []consumer
	replays   *replays
	informer  *informer.Informer[runtime.Object]
	// ready is closed when controllers need not wait for the informer: it has synced, a watch has failed to start, or
	// startTimeout has passed.
	ready     chan struct{}
	markReady func()
}

// newInformers returns the informers of all controllers, which stop with the context.
func newInformers(ctx context.Context, registry *storage.Registry, controllers []*runningController, replays *replays) map[origin]*sharedInformer {
	all := map[origin]*sharedInformer{}
	for _, c := range controllers {
		for i := range c.Sources {
			source := &c.Sources[i]
			for _, from := range source.origins(registry) {
				if all[from] == nil {
					all[from] = newSharedInformer(ctx, registry, from, replays)
				}
				all[from].consumers = append(all[from].consumers, consumer{c, source})
			}
		}
	}
	return all
}

func newSharedInformer(ctx context.Context, registry *storage.Registry, from origin, replays *replays) *sharedInformer {
	s := &sharedInformer{origin: from, registry: registry, replays: replays, ready: make(chan struct{})}
	s.markReady = sync.OnceFunc(func() { close(s.ready) })
	s.informer = informer.NewWithHandler(from.resource, s.start, informer.EventHandler[runtime.Object]{
		OnReplace: func(_ context.Context, objects []runtime.Object, _ string) error { s.replace(ctx, objects); return nil },
		OnAdd:     s.handler(watch.Added),
		OnUpdate:  s.handler(watch.Modified),
		OnDelete:  s.handler(watch.Deleted),
	})
	return s
}

// start starts a watch. Controllers do not wait for a resource that cannot be watched.
func (s *sharedInformer) start(ctx context.Context) (watch.Interface, error) {
	stream, err := s.watch(ctx, s.registry)
	if err != nil {
		s.markReady()
	}
	return stream, err
}

func (s *sharedInformer) run(ctx context.Context) {
	timeout := time.AfterFunc(startTimeout, s.markReady)
	defer timeout.Stop()
	s.informer.Run(ctx)
}

func (s *sharedInformer) handler(event watch.EventType) func(context.Context, runtime.Object) error {
	return func(_ context.Context, object runtime.Object) error {
		for _, consumer := range s.consumers {
			consumer.enqueue(event, object)
		}
		return nil
	}
}

// replace enqueues everything. Deletions may have been missed between two watches, or after controllers started without
// this informer: then the other sources of its controllers are replayed.
func (s *sharedInformer) replace(ctx context.Context, objects []runtime.Object) {
	for _, object := range objects {
		for _, consumer := range s.consumers {
			consumer.enqueue(watch.Added, object)
		}
	}
	select {
	case <-s.ready:
		s.replayOthers(ctx)
	default:
		s.markReady()
	}
}

func (s *sharedInformer) replayOthers(ctx context.Context) {
	for _, affected := range s.consumers {
		for i := range affected.Sources {
			other := consumer{affected.runningController, &affected.Sources[i]}
			for _, from := range other.source.origins(s.registry) {
				if from != s.origin {
					s.replays.start(ctx, replay{from, other})
				}
			}
		}
	}
}

// Start implements source.TypedSource. The informer enqueues into the controllers' queues by itself.
func (s *sharedInformer) Start(context.Context, workqueue.TypedRateLimitingInterface[Request]) error {
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (s *sharedInformer) WaitForSync(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sharedInformer) String() string { return s.resource.String() }

// sourcesOf returns the informers of a controller.
func sourcesOf(registry *storage.Registry, c *runningController, informers map[origin]*sharedInformer) []source.TypedSource[Request] {
	sources := map[origin]source.TypedSource[Request]{}
	for i := range c.Sources {
		for _, from := range c.Sources[i].origins(registry) {
			sources[from] = informers[from]
		}
	}
	return slices.Collect(maps.Values(sources))
}

// replay enqueues everything of one origin for one consumer.
type replay struct {
	origin
	consumer
}

// replays run beside the informers, because the initial events of an own watch may take long.
type replays struct {
	registry *storage.Registry
	group    sync.WaitGroup
	mu       sync.Mutex
	// pending are the replays that have not listed yet.
	pending map[replay]struct{}
}

// start starts a replay, unless one is pending, which will list the same objects.
func (r *replays) start(ctx context.Context, item replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, pending := r.pending[item]; pending {
		return
	}
	r.pending[item] = struct{}{}
	r.group.Go(func() { r.run(ctx, item) })
}

func (r *replays) run(ctx context.Context, item replay) {
	objects, err := item.list(ctx, r.registry)
	r.mu.Lock()
	delete(r.pending, item)
	r.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to replay a source", "controller", item.Name, "resource", item.resource)
	}
	for _, object := range objects {
		item.enqueue(watch.Added, object)
	}
}
