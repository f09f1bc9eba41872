package shardserver

import (
	"context"
	"slices"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/policystatus"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/suspension"
	"github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/endpointslice"
	"github.com/atoll-dev/atoll/shardserver/apiexport/export"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	cachedreplica "github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/customresourcedefinitions"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
	"github.com/atoll-dev/atoll/shardserver/sharding/identitystore"
	"github.com/atoll-dev/atoll/shardserver/sharding/registration"
	"github.com/atoll-dev/atoll/shardserver/sharding/replicatelabel"
	"github.com/atoll-dev/atoll/shardserver/sharding/routing"
	"github.com/atoll-dev/atoll/shardserver/sharding/topology"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
)

// createControllers creates the manager of all controllers, unless they are disabled.
func (d *dependencies) createControllers(context.Context) (err error) {
	if !d.options.Controllers.Enable {
		return nil
	}
	d.manager, err = controller.NewManager(controller.Config{
		Registry:    d.registry,
		Controllers: d.controllers(),
		Tasks:       d.controllerTasks(),
		Election:    d.election(),
	})
	return err
}

// controllers returns all controllers of the shard.
func (d *dependencies) controllers() []controller.Controller {
	all := slices.Concat(
		customresourcedefinitions.Controllers(customresourcedefinitions.Config{Registry: d.registry, Clients: d.clients, Definitions: d.definitions}),
		tenancy.Controllers(d.tenancyConfig()),
		lifecycle.Controllers(d.lifecycleConfig()),
		d.exportControllers(),
		[]controller.Controller{
			claims.Controller(d.claimsConfig()),
			replicatelabel.Controller(replicatelabel.Config{Registry: d.registry, Objects: d.clients.Metadata}),
			policystatus.Controller(policystatus.Config{Registry: d.registry, Kubernetes: d.clients.Kubernetes, Schemas: d.dynamicAdmission.Schemas()}),
			d.suspensionConditions().Controller(),
			identitystore.Controller(d.identityStoreConfig()),
			d.workspaceLimits.Controller(d.clients.Typed),
			topology.Controller(topology.Config{Registry: d.registry, Clients: d.clients}),
		},
	)
	all = append(all, d.registrationControllers()...)
	if d.options.FeatureEnabled(options.GateCacheAPIs) {
		all = append(all, d.cachedResourceControllers()...)
	}
	if d.migrations != nil {
		all = append(all, d.migrations.Controllers()...)
	}
	if d.replication != nil {
		all = append(all, d.replication.publisher.Controllers()...)
	}
	return all
}

// registrationControllers returns the controllers of Shard objects: of the one that this shard owns and, on the root shard, of those in root.
func (d *dependencies) registrationControllers() []controller.Controller {
	config := registration.Config{
		Registry: d.registry, Client: d.clients.Typed, ShardName: d.options.Shard.Name,
		Reports: func(shard string) bool { return d.heartbeats.LiveReport(shard) != nil },
	}
	all := []controller.Controller{
		registration.DecisionController(config),
		heartbeat.Controller(heartbeat.ControllerConfig{
			Registry: d.registry, Client: d.clients.Typed, ShardName: d.options.Shard.Name, Reporter: d.reporter, Heartbeats: d.heartbeats,
			Root: d.options.IsRoot(),
		}),
	}
	if d.options.IsRoot() {
		all = append(all, registration.RepresentationController(config))
	}
	return all
}

// suspensionConditions returns the conditions that report suspended expressions to tenants.
func (d *dependencies) suspensionConditions() *suspension.Conditions {
	return suspension.NewConditions(d.dynamicAdmission.Suspensions, d.registry, d.clients)
}

// controllerTasks returns the background work of the leader that is not driven by a queue.
func (d *dependencies) controllerTasks() []func(context.Context) {
	tasks := append(lifecycle.Tasks(d.lifecycleConfig()), d.placer.Run)
	if d.replication != nil {
		tasks = append(tasks, d.replication.publisher.Run, d.replication.replica.Persist)
	}
	if d.migrations != nil {
		tasks = append(tasks, d.migrations.ForgetProgress, d.migrations.RestoreWorkspaces)
	}
	if d.cachedResources != nil {
		tasks = append(tasks, d.cachedResources.replicator.Run, d.cachedResources.publisher.Run)
	}
	if o := d.options.SharedIndex; o.Enabled() {
		source := routing.NewSource(d.registry, d.options.Shard.Name)
		tasks = append(tasks, sharedindex.NewWriter(o, d.options.Shard.Name, source).Run)
	}
	return tasks
}

// election returns the leader election among the replicas of the shard, or nil when each runs the controllers.
func (d *dependencies) election() *controller.Election {
	if !d.options.Controllers.EnableLeaderElection {
		return nil
	}
	return &controller.Election{
		Client:    d.clients.Kubernetes.CoordinationV1(),
		Namespace: d.options.Controllers.LeaderElectionNamespace,
		Name:      d.options.Controllers.LeaderElectionName,
	}
}

// startControllers runs the controllers from the end of the bootstrap until the shutdown begins.
func (s *Server) startControllers(hook genericapiserver.PostStartHookContext) error {
	if s.manager == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(hook)
	s.background.Go(func() {
		defer close(s.controllersStopped)
		defer cancel()
		select {
		case <-s.bootstrapped:
		case <-s.stopping:
			return
		case <-ctx.Done():
			return
		}
		if err := s.manager.Run(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Controllers stopped")
		}
	})
	s.background.Go(func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	return nil
}

// stopControllers returns when the controllers have ended. The API server calls it once, while it still serves: controllers
// write through the API, and a leader releases its lease through it, or the next leader would wait for the lease to
// expire.
func (s *Server) stopControllers() error {
	close(s.stopping)
	<-s.controllersStopped
	return nil
}

// tenancyConfig configures the controllers of workspaces and logical clusters.
func (d *dependencies) tenancyConfig() tenancy.Config {
	status := binding.NewStatusPrecomputer(binding.Config{Registry: d.registry, Exports: d.exports, Definitions: d.bindingDefinitions})
	return tenancy.Config{
		Registry: d.registry,
		Clients:  d.clients,
		Types:    d.types,
		Defaults: defaultbindings.NewBinder(defaultbindings.Config{
			Registry: d.registry, Exports: d.exports, Client: d.clients.Typed, Precompute: status.Precompute,
		}),
		NamespaceDefaults: lifecycle.NewNamespaceDefaults(d.lifecycleConfig()),
		Placer:            d.placer,
		ShardName:         d.options.Shard.Name,
		Health:            d.reporter,
		Heartbeats:        d.heartbeats,
		Held:              d.restored.Held,
		Mounts:            d.options.FeatureEnabled(options.GateWorkspaceMounts),
		Keys:              d.keys,
		PurgeOrphans:      d.keys.PurgeOrphans,
		DeleteKeys:        d.keys.Delete,
		Deleted:           d.forgetDeleted,
		AuditDeletion:     d.deletionRecorder(),
	}
}

// lifecycleConfig configures the controllers of namespaces, service accounts, garbage collection and quota.
func (d *dependencies) lifecycleConfig() lifecycle.Config {
	return lifecycle.Config{
		Registry:  d.registry,
		Clients:   d.clients,
		Tokens:    d.tokenIssuer,
		Keys:      d.keys,
		InFlight:  d.quotaInFlight,
		Observers: []func() lifecycle.Observer{func() lifecycle.Observer { return claims.NewRepairer(d.claimsConfig()) }},
		RootCA: func() []byte {
			bundle, err := d.rootCA()
			if err != nil {
				klog.ErrorS(err, "Failed to read the root CA bundle")
			}
			return bundle
		},
	}
}

// claimsConfig configures what labels objects when permission claims change.
func (d *dependencies) claimsConfig() claims.Config {
	return claims.Config{Registry: d.registry, Index: d.claims, Objects: d.clients.Metadata, Bindings: d.clients.Typed}
}

// identityStoreConfig configures what stores the identities of the exports of root on this shard.
func (d *dependencies) identityStoreConfig() identitystore.Config {
	config := identitystore.Config{Registry: d.registry, Client: d.clients.Typed, OnConflict: func(error) {}}
	if d.root != nil {
		config.Stored, config.OnConflict = d.root.identities.Needed(), d.registration.SetPublishedError
	}
	return config
}

// sliceConfig configures the controller of endpoint slices, and the source of what other shards need of consumers.
func (d *dependencies) sliceConfig() endpointslice.Config {
	return endpointslice.Config{
		Registry: d.registry, Clients: d.clients, Exports: d.exports,
		Consumers: d.consumers, Slices: d.slices, ShardName: d.options.Shard.Name,
	}
}

// exportControllers returns the controllers of exports, endpoint slices and bindings.
func (d *dependencies) exportControllers() []controller.Controller {
	return slices.Concat(
		export.Controllers(export.Config{
			Registry: d.registry, Clients: d.clients, Exports: d.exports, ShardName: d.options.Shard.Name,
			DeprecatedURLs: d.options.FeatureEnabled(options.GateDeprecatedURLs),
		}),
		endpointslice.Controllers(d.sliceConfig()),
		binding.Controllers(binding.Config{
			Registry: d.registry, Clients: d.clients, Exports: d.exports, Consumers: d.consumers,
			Definitions: d.bindingDefinitions, Custom: d.definitions, Keys: d.keys, Claims: claims.NewReleaser(d.claimsConfig()),
			ShardName: d.options.Shard.Name, Clock: clock.RealClock{},
		}),
		d.bindingDefinitions.Controllers(),
		d.subresourceControllers(),
	)
}

// cachedResourceControllers returns the controllers of cached resources.
func (d *dependencies) cachedResourceControllers() []controller.Controller {
	references := exportReferences{d.exports, d}
	config := cachedresources.Config{Registry: d.registry, Clients: d.clients, Exports: references, ShardName: d.options.Shard.Name}
	if d.cachedResources == nil {
		return cachedresources.Controllers(config)
	}
	config.Publisher = d.cachedResources.publisher
	return append(cachedresources.Controllers(config), cachedreplica.Controller(cachedreplica.ControllerConfig{
		Registry: d.registry, Exports: references, Replicator: d.cachedResources.replicator,
	}))
}
