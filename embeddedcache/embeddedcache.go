// Package embeddedcache connects the cache server to the shard server, which do not import each other. Binaries pass
// New to the shard server.
package embeddedcache

import (
	"context"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/cacheserver/store"
)

// New creates the embedded cache server of a shard. It has no parent cache, and stores its objects in the shard's etcd,
// which the shard compacts.
func New(ctx context.Context, config embedded.Config) (embedded.Server, error) {
	quota := cacheserver.DefaultQuota
	quota.Objects = config.MaxObjects
	handler, err := cacheserver.NewHandler(ctx, cacheserver.HandlerConfig{
		Store:        store.Config{Transport: config.Transport, Prefix: config.Prefix, Transformer: config.Transformer},
		ShardTimeout: cacheserver.DefaultShardTimeout,
		MinWatch:     config.MinWatch,
		MaxBody:      config.MaxBody,
		AlwaysAllow:  config.AlwaysAllow,
		Quota:        quota,
	})
	if err != nil {
		return nil, err // not the handler: an interface with a nil handler is not nil
	}
	return handler, nil
}
