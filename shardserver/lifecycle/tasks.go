package lifecycle

import (
	"context"
	"sync"

	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/garbage"
)

// Tasks returns what acts on objects of any resource: the garbage collector.
// They share one watch per storage.
func Tasks(cfg Config) []func(context.Context) {
	return []func(context.Context){func(ctx context.Context) {
		collector := garbage.New(garbage.Config{Registry: cfg.Registry, Metadata: cfg.Clients.Metadata, Kubernetes: cfg.Clients.Kubernetes})
		follower := follow.New(cfg.Registry, collector)
		var group sync.WaitGroup
		group.Go(func() { follower.Run(ctx) })
		group.Go(func() { collector.Run(ctx, follower) })
		group.Wait()
	}}
}
