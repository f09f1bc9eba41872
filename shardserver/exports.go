package shardserver

import (
	"context"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiexport/endpointslice"
	"github.com/atoll-dev/atoll/shardserver/apiexport/export"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
)

// hookReferrers is the name of the post-start hook that is done when it is known who refers to which export.
const hookReferrers = "kcp-follow-export-references"

// referrers know which objects refer to which export.
type referrers struct {
	consumers *apiindex.Referrers[*apisv1alpha2.APIBinding]
	slices    *apiindex.Referrers[*apisv1alpha1.APIExportEndpointSlice]
}

// followReferrers ties what is known of references to exports to the life of the server.
func (s *Server) followReferrers() {
	s.referrers = referrers{consumers: apiindex.NewConsumers(s.Registry), slices: apiindex.NewSlices(s.Registry)}
	consumers, slices := s.referrers.consumers, s.referrers.slices
	s.Generic.AddPostStartHookOrDie(hookReferrers, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { consumers.Run(hook) })
		s.running.Go(func() { slices.Run(hook) })
		for _, wait := range []func(context.Context) error{consumers.WaitForSync, slices.WaitForSync} {
			if err := wait(hook); err != nil && hook.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// Consumers returns the index of the bindings of this shard by export.
func (s *Server) Consumers() *apiindex.Referrers[*apisv1alpha2.APIBinding] {
	return s.referrers.consumers
}

// reserver returns what keeps resources for definitions that are about to be created.
func (c *Config) reserver() *binding.Reserver {
	return &binding.Reserver{
		Clusters: storage.NewReader[*corev1alpha1.LogicalCluster](c.registry, corev1alpha1.Resource("logicalclusters")),
		Client:   c.clients.Typed,
		Clock:    clock.RealClock{},
	}
}

// madeDefinitions returns what makes definitions of schemas; there is one in a process.
func (s *Server) madeDefinitions() *definitions.Definitions {
	if s.made == nil {
		s.made = definitions.New(definitions.Config{
			Registry: s.Registry, Client: s.config.clients.Typed, Exports: s.config.exports, Index: s.config.bindings, Clock: clock.RealClock{},
		})
	}
	return s.made
}

// defaultBindings returns what makes the bindings that workspace types ask for.
func (s *Server) defaultBindings() *defaultbindings.Binder {
	foreseer := binding.NewForeseer(binding.Config{Registry: s.Registry, Exports: s.config.exports, Definitions: s.madeDefinitions()})
	return defaultbindings.NewBinder(defaultbindings.Config{
		Registry: s.Registry, Exports: s.config.exports, Client: s.config.clients.Typed, Foresee: foreseer.Foresee,
	})
}

// references is what follows the references of those who offer cached resources.
type references struct {
	*apiindex.Catalog
	server *Server
}

// Consumed implements cachedresources.Exports.
func (r references) Consumed(ctx context.Context, export *apisv1alpha2.APIExport) (bool, error) {
	consumers := r.server.referrers.consumers
	if err := consumers.WaitForSync(ctx); err != nil {
		return false, err
	}
	return consumers.Any(export), nil
}

// Locate implements cachedresources.Exports.
func (r references) Locate(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	return r.server.config.types.Locate(ctx, path)
}

// cacheControllers returns the controllers of cached resources, if those are served.
func (s *Server) cacheControllers() []controller.Controller {
	if !s.options.FeatureEnabled(options.GateCacheAPIs) {
		return nil
	}
	config := cachedresources.Config{
		Registry: s.Registry, Clients: s.config.clients, Exports: references{s.config.exports, s}, ShardName: s.options.Shard.Name,
	}
	if s.copies() != nil {
		config.Publisher = s.replication.cached.offers
	}
	return append(cachedresources.Controllers(config), s.copyControllers()...)
}

// sliceConfig is what the controller of endpoint slices gets, and what tells other shards of consumers.
func (s *Server) sliceConfig() endpointslice.Config {
	return endpointslice.Config{
		Registry: s.Registry, Clients: s.config.clients, Exports: s.config.exports,
		Consumers: s.referrers.consumers, Slices: s.referrers.slices, ShardName: s.options.Shard.Name,
	}
}

// exportControllers returns the controllers of exports, endpoint slices and bindings.
func (s *Server) exportControllers() []controller.Controller {
	made := s.madeDefinitions()
	controllers := export.Controllers(export.Config{
		Registry: s.Registry, Clients: s.config.clients, ShardName: s.options.Shard.Name,
		DeprecatedURLs: s.options.FeatureEnabled(options.GateDeprecatedURLs),
	})
	controllers = append(controllers, endpointslice.Controllers(s.sliceConfig())...)
	controllers = append(controllers, binding.Controllers(binding.Config{
		Registry: s.Registry, Clients: s.config.clients, Exports: s.config.exports, Consumers: s.referrers.consumers,
		Definitions: made, Custom: s.config.definitions, Claims: claims.NewReleaser(s.claimsConfig()),
		ShardName: s.options.Shard.Name, Clock: clock.RealClock{},
	})...)
	return append(controllers, made.Controllers()...)
}
