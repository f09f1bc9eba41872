package shardserver

import (
	"context"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/shardserver/cachedresources/publisher"
	"github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/options"
)

// hookCopies is the name of the post-start hook that begins to close copies which nobody reads.
const hookCopies = "kcp-close-idle-copies"

// cachedCopies are both sides of cached resources between shards: what this one offers to others, and what it has of them
// for its consumers.
type cachedCopies struct {
	offers *publisher.Publisher
	store  *replica.Store
	keeper *replica.Keeper
}

// addCopies makes what reads cached resources of other shards and publishes those of this one, if they are served.
func (s *Server) addCopies() error {
	if !s.options.FeatureEnabled(options.GateCacheAPIs) {
		return nil
	}
	storage := s.options.Etcd.StorageConfig
	storage.Prefix = replica.Prefix(storage.Prefix)
	pool := crdstorage.NewPool(crdstorage.Options{
		Storage: storage, Transformers: s.config.rest.transformers, WatchCache: s.options.Etcd.EnableWatchCache,
		DeleteCollectionWorkers: s.options.Etcd.DeleteCollectionWorkers,
	})
	r := s.replication
	r.cached = &cachedCopies{store: replica.NewStore(pool, s.config.definitions)}
	r.cached.keeper = replica.NewKeeper(replica.KeeperConfig{Store: r.cached.store, Cache: r.cache, Disk: r.disk})
	r.cached.offers = publisher.New(publisher.Config{
		Registry: s.Registry, Shard: s.options.Shard.Name, Cache: r.cache, Mirror: r.mirror, Objects: s.config.clients.Dynamic,
	})
	s.Generic.RegisterDestroyFunc(r.cached.store.Close)
	err := s.Generic.AddPostStartHook(hookCopies, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { r.cached.store.Run(hook) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding copies of cached resources: %w", err)
	}
	return nil
}

// copies returns what has the cached resources of other shards; nil without a cache.
func (s *Server) copies() *replica.Store {
	if s.replication == nil || s.replication.cached == nil {
		return nil
	}
	return s.replication.cached.store
}

// copyControllers find out what has to be copied from other shards, copyTasks do it.
func (s *Server) copyControllers() []controller.Controller {
	if s.copies() == nil {
		return nil
	}
	return []controller.Controller{replica.Wanted(replica.WantedConfig{
		Registry: s.Registry, Exports: references{s.config.exports, s}, Keeper: s.replication.cached.keeper,
	})}
}

// copyTasks is explained at copyControllers.
func (s *Server) copyTasks() []func(context.Context) {
	if s.copies() == nil {
		return nil
	}
	return []func(context.Context){s.replication.cached.keeper.Run, s.replication.cached.offers.Run}
}
