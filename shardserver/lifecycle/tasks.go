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
		handlers := []follow.EventHandler{collector, quotas}
		var group sync.WaitGroup
		for _, create := range cfg.Observers {
			observer := create()
			handlers = append(handlers, observer)
			group.Go(func() { observer.Run(ctx) })
		}
		informer := follow.New(cfg.Registry, handlers...)
		group.Go(func() { informer.Run(ctx) })
		group.Go(func() { collector.Run(ctx, informer) })
		group.Go(func() { quotas.Run(ctx) })
		group.Wait()
	}}
}
