// Package embeddedcache puts a cache server into a shard: the one place that knows both. Binaries hand New to the shard
// server; nothing else is here.
package embeddedcache

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/shardserver"
)

// New is a shardserver.NewCache. The cache of a shard has no parent, and lies in the shard's etcd, which the shard
// compacts.
func New(ctx context.Context, config shardserver.CacheConfig) (shardserver.Cache, error) {
	bounds := cacheserver.DefaultBounds
	bounds.Objects = config.MaxObjects
	return cacheserver.NewHandler(ctx, cacheserver.HandlerConfig{
		Store:       store.Config{Transport: config.Transport, Prefix: config.Prefix, Transformer: config.Transformer},
		Silence:     cacheserver.DefaultSilence,
		MinWatch:    config.MinWatch,
		MaxBody:     config.MaxBody,
		AlwaysAllow: config.AlwaysAllow,
		Bounds:      bounds,
	})
}
