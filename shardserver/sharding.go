package shardserver

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	registryrest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/startupserver"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/endpointslice"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	cachedpublisher "github.com/atoll-dev/atoll/shardserver/cachedresources/publisher"
	cachedreplica "github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
	"github.com/atoll-dev/atoll/shardserver/sharding/join"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
)

const (
	// checkRegistration is the name of the /readyz check of the registration in root.
	checkRegistration = "shard-registration"
	// heartbeatInterval is the time between two reports of a shard.
	heartbeatInterval = 10 * time.Second
	// replicaSyncTimeout bounds how long the readiness of a shard waits for the objects of other shards.
	replicaSyncTimeout = 5 * time.Second
	// trustInterval is the time between two checks that the cache belongs to this installation.
	trustInterval = time.Second
)

// rootShard connects a shard that is not root to the root shard.
type rootShard struct {
	client     *join.Root
	identities join.Identities
	// firstStart is true if the shard had to fetch its identities: it was never part of the installation before.
	firstStart bool
}

// join resolves the identities by which this shard, which is not root, stores kcp's own APIs. Until it returns, the secure
// port answers with the reason of the delay.
func (d *dependencies) join(ctx context.Context, configMaps registryrest.Storage) (_ *rootShard, err error) {
	store, ok := configMaps.(join.Store)
	if !ok {
		return nil, fmt.Errorf("the storage of config maps is %T, which cannot hold identities", configMaps)
	}
	config, err := d.options.RootConfig()
	if err != nil {
		return nil, err
	}
	root := &rootShard{}
	if root.client, err = join.NewRoot(config); err != nil {
		return nil, err
	}
	var startupServer *startupserver.Server
	var serveErr error
	root.identities, err = join.Resolve(ctx, store, root.client, func(reason error) {
		root.firstStart = true
		if startupServer == nil && serveErr == nil {
			startupServer, serveErr = startupserver.New(d.generic.SecureServing, "identities")
		}
		if startupServer != nil {
			startupServer.SetReason(reason)
		}
	})
	if startupServer != nil {
		serveErr = startupServer.Stop()
	}
	if err == nil && serveErr != nil {
		err = fmt.Errorf("answering on the secure port while waiting for the root shard: %w", serveErr)
	}
	return root, err
}

// bootstrapOptions returns the content of the logical clusters that the shard creates, and its registration.
func (d *dependencies) bootstrapOptions() bootstrap.Options {
	shard := d.options.Shard
	return bootstrap.Options{
		ShardName:           shard.Name,
		BaseURL:             shard.BaseURL,
		ExternalURL:         shard.ExternalURL,
		VirtualWorkspaceURL: shard.VirtualWorkspaceURL,
		ShardLabels:         shard.Labels,
		Root:                d.options.IsRoot(),
		Batteries:           d.options.Batteries.Names(),
		HomeWorkspaces:      d.options.Home.Enabled,
		HomeCreatorGroups:   d.options.Home.CreatorGroups,
		CacheAPIs:           d.options.FeatureEnabled(options.GateCacheAPIs),
	}
}

// createRegistration creates what registers a shard that is not root in root, in the background. Only a shard that is new
// to the installation is not ready before: others serve whether root is reachable or not. The bootstrap of the root shard
// registers that one.
func (d *dependencies) createRegistration(context.Context) error {
	if d.root == nil {
		return nil
	}
	d.registration = &join.Registration{
		Root:     d.root.client,
		Stored:   d.root.identities,
		Required: d.root.firstStart,
		Register: func(ctx context.Context, c client.Client, create bool) error {
			return bootstrap.RegisterShard(ctx, c, d.bootstrapOptions(), create)
		},
	}
	d.generic.AddReadyzChecks(healthz.NamedCheck(checkRegistration, func(*http.Request) error { return d.registration.Healthy() }))
	return nil
}

// createHeartbeat creates what reports the load and health of this shard, and what reads the reports of others.
func (d *dependencies) createHeartbeat(context.Context) error {
	d.reporter = heartbeat.NewReporter(heartbeat.ReporterConfig{
		Registry:           d.registry,
		Keys:               d.keys,
		MaxLogicalClusters: d.options.Shard.MaxLogicalClusters,
		MaxObjects:         d.options.Shard.MaxObjects,
		MemoryLimit:        debug.SetMemoryLimit(-1),
		Space:              d.space.Space,
		Hidden:             d.fence.HiddenClusters,
		Healthy: func() error {
			if d.registration == nil {
				return nil
			}
			return d.registration.Healthy()
		},
		Refused:  d.refusedObjects(),
		Outdated: d.outdated(),
		Shard:    d.ownShard(),
	})
	d.heartbeats = heartbeat.NewTracker(d.registry)
	return nil
}

// outdated returns a function that describes the logical clusters that have moved since the backup of this shard, or nil if none move.
func (d *dependencies) outdated() func() (reason, message string) {
	if d.fence == nil {
		return nil
	}
	return func() (string, string) { return d.migrations.OutdatedProblem() }
}

// ownShard returns a function that returns the Shard object of this shard, or nil while it is not known here.
func (d *dependencies) ownShard() func() *corev1alpha1.Shard {
	shards := endpoints.NewShardLister(d.registry)
	return func() *corev1alpha1.Shard {
		shard, err := shards.Get(context.Background(), d.options.Shard.Name)
		if err != nil {
			return nil
		}
		return shard
	}
}

// refusedObjects returns a function that describes the objects of this shard that the cache server refuses, or nil
// without a cache server.
func (d *dependencies) refusedObjects() func() string {
	if config, err := d.cacheConfig(); err != nil || config == nil {
		return nil // createReplication returns the error
	}
	return func() string { return d.replication.publisher.RefusedMessage() }
}

// shardReplication connects a shard to the cache server: what other shards publish, and what this one publishes.
type shardReplication struct {
	cache     *cacheclient.Client
	replica   *replica.Informer
	publisher *publisher.Publisher
	snapshots *replica.SnapshotStore
}

// cachedResources are both sides of cached resources between shards: what this shard publishes to others, and the replicas
// of what others publish for consumers on this shard.
type cachedResources struct {
	publisher  *cachedpublisher.Publisher
	store      *cachedreplica.Store
	replicator *cachedreplica.Replicator
}

// createReplication creates the replica of what other shards publish and the publisher of this shard, if there is a cache
// server. It loads what was replicated before the last stop. All resources must be in the registry.
func (d *dependencies) createReplication(ctx context.Context) error {
	config, err := d.cacheConfig()
	if err != nil || config == nil {
		return err
	}
	r := &shardReplication{}
	d.replication = r // from here on, Server.stop closes it
	if r.cache, err = cacheclient.New(config, d.options.Shard.Name); err != nil {
		return fmt.Errorf("--cache-kubeconfig: %w", err)
	}
	etcd, err := etcdkeys.Connect(d.options.Etcd.StorageConfig.Transport)
	if err != nil {
		return err
	}
	r.snapshots = &replica.SnapshotStore{Etcd: etcd, Prefix: d.options.Etcd.StorageConfig.Prefix}
	resources := publisher.ReplicatedResources(d.registry)
	for _, resource := range cacheclient.Resources() {
		if d.registry.IsRemoteOnly(resource.GroupResource()) {
			resources = append(resources, resource)
		}
	}
	r.replica = replica.New(replica.Config{
		Shard: d.options.Shard.Name, Root: options.DefaultShardName, Resources: resources, Shards: d.registeredShards(), SnapshotStore: r.snapshots,
		MaxPerShard: int(d.options.Shard.MaxObjectsPerRemoteShard),
	})
	if err := r.replica.Load(ctx); err != nil {
		return err
	}
	d.registry.SetRemoteStore(r.replica)
	r.publisher = publisher.New(publisher.Config{
		Registry: d.registry, Shard: d.options.Shard.Name, Cache: r.cache, Informer: r.replica, Sources: d.publishedSources(),
		Report: func(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error) { return d.reporter.Report(ctx) }, Interval: heartbeatInterval,
	})
	if d.options.FeatureEnabled(options.GateCacheAPIs) {
		d.createCachedResources()
	}
	return nil
}

func (d *dependencies) createCachedResources() {
	config := d.options.Etcd.StorageConfig
	config.Prefix = cachedreplica.Prefix(config.Prefix)
	pool := crdstorage.NewPool(crdstorage.Options{
		Storage: config, Transformers: d.restOptions.transformers, WatchCache: d.options.Etcd.EnableWatchCache,
		DeleteCollectionWorkers: d.options.Etcd.DeleteCollectionWorkers,
	})
	store := cachedreplica.NewStore(pool, d.definitions)
	d.cachedResources = &cachedResources{
		store:      store,
		replicator: cachedreplica.NewReplicator(cachedreplica.ReplicatorConfig{Store: store, Cache: d.replication.cache, SnapshotStore: d.replication.snapshots}),
		publisher: cachedpublisher.New(cachedpublisher.Config{
			Registry: d.registry, Shard: d.options.Shard.Name, Cache: d.replication.cache, Informer: d.replication.replica, Objects: d.clients.Dynamic,
		}),
	}
}

// replicas returns the replicas of cached resources of other shards; nil without a cache server.
func (d *dependencies) replicas() *cachedreplica.Store {
	if d.cachedResources == nil {
		return nil
	}
	return d.cachedResources.store
}

// cachedStores returns what serves cached resources: originals of this shard, and replicas of other shards.
func (d *dependencies) cachedStores() []*cachedreplica.Store {
	return slices.DeleteFunc([]*cachedreplica.Store{d.originals, d.replicas()}, func(store *cachedreplica.Store) bool { return store == nil })
}

// runReplication runs the replica until the context ends, but not while root belongs to another installation: such a cache is
// not trusted, and while the replica does not run nothing is published.
func (d *dependencies) runReplication(ctx context.Context) {
	trusted := func(context.Context) (bool, error) {
		return d.registration == nil || d.registration.ForeignRootError() == nil, nil
	}
	for {
		if err := wait.PollUntilContextCancel(ctx, trustInterval, true, trusted); err != nil || ctx.Err() != nil {
			return
		}
		running, cancel := context.WithCancel(ctx)
		var group wait.Group
		group.Start(func() {
			defer cancel()
			_ = wait.PollUntilContextCancel(running, trustInterval, true, func(ctx context.Context) (bool, error) {
				ok, err := trusted(ctx)
				return !ok, err
			})
		})
		d.replication.replica.Run(running, d.replication.cache)
		cancel()
		group.Wait()
	}
}

// waitForReplicaSync waits for the objects of other shards, but not so long that an unavailable cache keeps the shard from
// becoming ready.
func (d *dependencies) waitForReplicaSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaSyncTimeout)
	defer cancel()
	d.replication.replica.WaitForSync(ctx)
	return nil
}

// cacheConfig returns the connection to the cache server, nil if there is none.
func (d *dependencies) cacheConfig() (*rest.Config, error) {
	config, err := d.options.CacheConfig()
	if config == nil && err == nil && d.cache != nil {
		return d.generic.LoopbackClientConfig, nil
	}
	return config, err
}

// publishedSources returns everything that other shards need of this one.
func (d *dependencies) publishedSources() []publisher.Source {
	restored := publisher.Restored{}
	if d.migrations != nil {
		restored = publisher.Restored{Answers: d.fence.Answers, IsConfirmed: d.fence.IsConfirmed, Confirmed: d.migrations.Confirmed()}
	}
	all := publisher.ObjectSources(d.registry, restored)
	for _, source := range tenancy.PublishedSources(d.tenancyConfig()) {
		all = append(all, restored.AwaitCluster(source))
	}
	all = append(all, restored.AwaitAll(endpointslice.ConsumersSource(d.sliceConfig())), restored.AwaitAll(d.workspaceLimits.CountsSource()))
	if d.migrations != nil {
		all = append(all, d.migrations.PublishedSource())
	}
	return all
}

// registeredShards returns a function that lists the shards of the installation by name, with true for those that have
// ever reported. It is nil on other shards than root, where they are not registered.
func (d *dependencies) registeredShards() func(context.Context) (map[string]bool, error) {
	if !d.options.IsRoot() {
		return nil
	}
	shards := storage.NewReader[*corev1alpha1.Shard](d.registry, corev1alpha1.Resource("shards"))
	return func(ctx context.Context) (map[string]bool, error) {
		all, err := shards.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
		reported := make(map[string]bool, len(all))
		for _, shard := range all {
			reported[shard.Name] = replica.Reported(shard)
		}
		return reported, err
	}
}

// replicationMetrics returns the metrics of how far replication lags behind.
func (d *dependencies) replicationMetrics() []metrics.StableCollector {
	if d.replication == nil {
		return nil
	}
	return []metrics.StableCollector{replica.NewCollector(d.replication.replica, d.replication.publisher, d.replication.cache.ClockSkew)}
}

// close closes the connections.
func (r *shardReplication) close() {
	if r.cache != nil {
		r.cache.CloseIdleConnections()
	}
	if r.snapshots != nil {
		_ = r.snapshots.Etcd.Close()
	}
}
