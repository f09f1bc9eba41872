package lifecycle

import (
	"context"
	"sync"

	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/garbage"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
)

// Tasks returns the background tasks that process objects of all resources: the garbage collector and the resource
// quota controller. They and the observers share one watch per storage.
func Tasks(cfg Config) []func(context.Context) {
	return []func(context.Context){func(ctx context.Context) {
		collector := garbage.New(garbage.Config{Registry: cfg.Registry, Metadata: cfg.Clients.Metadata, Kubernetes: cfg.Clients.Kubernetes})
		quotas := quota.New(quota.Config{Registry: cfg.Registry, Kubernetes: cfg.Clients.Kubernetes, InFlight: cfg.InFlight})
		handlers := []informer.NewHandlerFunc{collector.EventHandler, quotas.EventHandler}
		var group sync.WaitGroup
		for _, create := range cfg.Observers {
			observer := create()
			handlers = append(handlers, observer.EventHandler)
			group.Go(func() { observer.Run(ctx) })
		}
		informers := informer.NewSet(cfg.Registry, handlers...)
		group.Go(func() { informers.Run(ctx) })
		group.Go(func() { collector.Run(ctx, informers) })
		group.Go(func() { quotas.Run(ctx) })
		group.Wait()
	}}
}
