package lifecycle

import (
	"context"
	"sync"

	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/garbage"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
)

// Tasks returns the background tasks that process objects of all resources: the garbage collector and the resource quota
// controller. They and the observers share one watch per storage.
func Tasks(cfg Config) []func(context.Context) {
	return []func(context.Context){func(ctx context.Context) {
		collector := garbage.New(garbage.Config{Registry: cfg.Registry, Metadata: cfg.Clients.Metadata, Kubernetes: cfg.Clients.Kubernetes})
		quotas := quota.New(quota.Config{Registry: cfg.Registry, Kubernetes: cfg.Clients.Kubernetes, InFlight: cfg.InFlight})
		listeners := []follow.Listener{collector, quotas}
		var group sync.WaitGroup
		for _, create := range cfg.Observers {
			observer := create()
			listeners = append(listeners, observer)
			group.Go(func() { observer.Run(ctx) })
		}
		follower := follow.New(cfg.Registry, listeners...)
		group.Go(func() { follower.Run(ctx) })
		group.Go(func() { collector.Run(ctx, follower) })
		group.Go(func() { quotas.Run(ctx) })
		group.Wait()
	}}
}
