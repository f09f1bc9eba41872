package shardserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/endpointslice"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
)

const (
	// hookMirror is the name of the post-start hook that begins to follow the cache.
	hookMirror = "kcp-follow-cache"
	// heartbeatInterval is how often a shard reports on itself.
	heartbeatInterval = 10 * time.Second
	// knownPatience bounds how long a shard that has never been ready waits for what other shards have.
	knownPatience = 5 * time.Second
	// trustInterval is how often it is looked whether the cache is that of this installation.
	trustInterval = time.Second
)

// replicator is what a shard knows of others and tells them.
type replicator struct {
	cache     *client.Client
	mirror    *replica.Mirror
	publisher *publisher.Publisher
	disk      *replica.Disk
	// cached is nil without cached resources.
	cached *cachedCopies
}

// addReplication makes the mirror of other shards and what publishes to them, if there is a cache. What was known before
// the last stop is known again when it returns. All resources must be in the registry.
func (s *Server) addReplication(ctx context.Context) error {
	config, err := s.cacheConfig()
	if err != nil || config == nil {
		return err
	}
	r := &replicator{}
	s.replication = r // from here on, stop ends it
	if r.cache, err = client.New(config, s.options.Shard.Name); err != nil {
		return fmt.Errorf("--cache-kubeconfig: %w", err)
	}
	etcd, err := etcdkeys.Connect(s.StorageTransport())
	if err != nil {
		return err
	}
	r.disk = &replica.Disk{Etcd: etcd, Prefix: s.options.Etcd.StorageConfig.Prefix}
	followed := publisher.Copied(s.Registry)
	for _, resource := range client.Resources() {
		if storage.OnlyElsewhere(resource.GroupResource()) {
			followed = append(followed, resource)
		}
	}
	r.mirror = replica.New(replica.Config{
		Shard: s.options.Shard.Name, Root: options.DefaultShardName, Resources: followed, Shards: s.registeredShards(), Disk: r.disk,
		MaxPerShard: int(s.options.Shard.MaxObjectsOfAnother),
	})
	if err := r.mirror.Load(ctx); err != nil {
		return err
	}
	s.Registry.SetElsewhere(r.mirror)
	r.publisher = publisher.New(publisher.Config{
		Registry: s.Registry, Shard: s.options.Shard.Name, Cache: r.cache, Mirror: r.mirror, Sources: s.publishedSources(),
		Report: func(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) { return s.reporter.Report(ctx) }, Interval: heartbeatInterval,
	})
	if err := s.addCopies(); err != nil {
		return err
	}
	return s.Generic.AddPostStartHook(hookMirror, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { s.followCache(hook) })
		// Who is sent here from now on should not hear that something is not known yet, if that can be helped.
		ctx, cancel := context.WithTimeout(hook, knownPatience)
		defer cancel()
		r.mirror.WaitKnown(ctx)
		return nil
	})
}

// followCache keeps the mirror running until the context ends, but not while root is that of another installation: what
// such a cache says is believed no more, and the mirror being still, nothing is published.
func (s *Server) followCache(ctx context.Context) {
	ours := func() bool { return s.registration == nil || s.registration.Foreign() == nil }
	for ctx.Err() == nil {
		if ours() {
			s.followWhile(ctx, ours)
		}
		pause(ctx, trustInterval)
	}
}

func (s *Server) followWhile(ctx context.Context, ours func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		for ctx.Err() == nil && ours() {
			pause(ctx, trustInterval)
		}
	})
	s.replication.mirror.Run(ctx, s.replication.cache)
	cancel()
	watching.Wait()
}

func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// cacheConfig returns how the cache is reached, nil if there is none.
func (s *Server) cacheConfig() (*rest.Config, error) {
	config, err := s.options.CacheConfig()
	if config == nil && err == nil && s.cache != nil {
		return s.Generic.LoopbackClientConfig, nil
	}
	return config, err
}

// publishedSources are all that other shards must know of this one.
func (s *Server) publishedSources() []publisher.Source {
	return slices.Concat(
		publisher.Copies(s.Registry),
		tenancy.PublishedSources(s.tenancyConfig()),
		[]publisher.Source{endpointslice.ConsumersSource(s.sliceConfig())},
	)
}

// registeredShards returns what lists the shards of the installation where they are registered, and whether they have ever
// reported; nil on other shards.
func (s *Server) registeredShards() func(context.Context) (map[string]bool, error) {
	if !s.options.IsRoot() {
		return nil
	}
	shards := storage.NewReader[*corev1alpha1.Shard](s.Registry, corev1alpha1.Resource("shards"))
	return func(ctx context.Context) (map[string]bool, error) {
		all, err := shards.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
		shards := make(map[string]bool, len(all))
		for _, shard := range all {
			shards[shard.Name] = replica.Reported(shard)
		}
		return shards, err
	}
}

// replicationControllers publish, replicationTasks report and keep what is known.
func (s *Server) replicationControllers() []controller.Controller {
	if s.replication == nil {
		return nil
	}
	return s.replication.publisher.Controllers()
}

// replicationTasks is explained at replicationControllers.
func (s *Server) replicationTasks() []func(context.Context) {
	if s.replication == nil {
		return nil
	}
	return []func(context.Context){s.replication.publisher.Run, s.replication.mirror.Persist}
}

// replicationMetrics tell how far behind replication is.
func (s *Server) replicationMetrics() []metrics.StableCollector {
	if s.replication == nil {
		return nil
	}
	return []metrics.StableCollector{replica.NewCollector(s.replication.mirror, s.replication.publisher.Behind, s.replication.cache.ClockAhead)}
}

// close ends the connections.
func (r *replicator) close() {
	if r.cache != nil {
		r.cache.CloseIdle()
	}
	if r.disk != nil {
		_ = r.disk.Etcd.Close()
	}
}
