package shardserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/crdpaths"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/cachedresources/replica"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdhandler"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/discovery"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	kcpmetrics "github.com/atoll-dev/atoll/shardserver/metrics"
	"github.com/atoll-dev/atoll/shardserver/openapi"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacelimits"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
	"github.com/atoll-dev/atoll/shardserver/usage"
	"github.com/atoll-dev/atoll/shardserver/virtual/replication"
	"github.com/atoll-dev/atoll/shardserver/virtual/virtualstorage"
)

// buildIndexes creates the indexes over the watch caches. Nothing is read before they run.
func (d *dependencies) buildIndexes() {
	etcd := d.options.Etcd.StorageConfig
	d.keys = etcdkeys.New(etcdkeys.Config{Transport: etcd.Transport, Prefix: etcd.Prefix, Registry: d.registry})
	d.logicalClusters = storage.NewReader[*corev1alpha1.LogicalCluster](d.registry, corev1alpha1.Resource("logicalclusters"))
	d.workspaceTypes = workspacetype.NewIndex(d.registry)
	d.types = workspacetype.NewResolver(workspacetype.NewConsistentReader(d.registry, d.workspaceTypes))
	d.bindings = bindings.NewIndex(d.registry)
	d.exports = apiindex.NewResolver(d.registry, d.types.Locate)
	d.consumers, d.slices = apiindex.NewConsumerIndex(d.registry), apiindex.NewSliceIndex(d.registry)
	d.claims = claims.NewIndex(d.registry, d.bindings)
	d.objectCounts = objectcount.New(objectcount.Config{
		Registry: d.registry, Keys: d.keys, Shard: d.options.Shard.Name,
		DefaultLimit: d.options.Objects.DefaultLimit, DefaultByteLimit: d.defaultByteLimit, Interval: d.options.Objects.ScanInterval,
	})
	d.space = etcdkeys.NewSpaceMonitor(d.keys, d.options.Shard.Name, d.written)
	d.quotaInFlight = quota.NewInFlight()
	d.workspaceLimits = workspacelimits.NewTracker(d.registry)
	d.usage = usage.NewRecorder(usage.Config{
		Connect: d.keys.Connect, Keys: d.keys, Prefix: etcd.Prefix, Shard: d.options.Shard.Name, Interval: d.options.UsageInterval,
		Exists: d.exists, StoredKey: d.keys.KeyOfLogicalCluster, IsGone: d.isGone,
	})
}

// exists reports whether the context's logical cluster is in the watch cache.
func (d *dependencies) exists(ctx context.Context) bool {
	return d.find(ctx) == nil
}

// find returns the error of reading the context's logical cluster from the watch cache.
func (d *dependencies) find(ctx context.Context) error {
	_, err := d.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	return err
}

// isGone reports whether a logical cluster has been deleted. The watch cache may not have a new one yet, so etcd decides.
func (d *dependencies) isGone(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	ctx = logicalcluster.With(fence.WithMover(ctx), cluster)
	_, err := d.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		_, err = d.logicalClusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// defaultByteLimit returns the byte limit of logical clusters without one of their own.
func (d *dependencies) defaultByteLimit() int64 {
	if limit := d.options.Objects.DefaultByteLimit; limit != options.AutomaticByteLimit {
		return limit
	}
	return objectcount.ByteLimitFor(d.space.Space().Quota)
}

// Bindings returns the index of what logical clusters have bound.
func (s *Server) Bindings() *bindings.Index { return s.bindings }

// Exports returns the index of exports and their schemas.
func (s *Server) Exports() *apiindex.Resolver { return s.exports }

// Consumers returns the index of the bindings of this shard by export.
func (s *Server) Consumers() *apiindex.ReferenceIndex[*apisv1alpha2.APIBinding] { return s.consumers }

// Definitions returns the registry of the definitions of all logical clusters.
func (s *Server) Definitions() *crdregistry.Registry { return s.definitions }

// collectors returns the metrics of the indexes and of replication.
func (d *dependencies) collectors() []metrics.StableCollector {
	return append(d.replicationMetrics(), kcpmetrics.NewExportCollector(d.options.Shard.Name, d.bindings, d.exports), d.usage.Collector())
}

// isVisible is true if the context's logical cluster serves a resource that is compiled in. A resource that is stored with
// an identity is served where it is bound with that identity, every other resource in all logical clusters. Exceptions,
// where everything is served: root and system:shard, because a fresh shard writes there before anything can be bound;
// requests over all logical clusters or outside of any; and a logical cluster that is being deleted, whose remaining
// objects must be found even if its bindings are gone.
func (d *dependencies) isVisible(ctx context.Context, gr schema.GroupResource) bool {
	resource, err := d.registry.Get(gr)
	if err != nil {
		return true // not stored
	}
	if gr == adminResource {
		cluster, ok := logicalcluster.From(ctx)
		return !ok || cluster.IsWildcard() || cluster == logicalcluster.Root
	}
	identity := resource.Segment()
	if identity == "" || identity == customResourceSegment {
		return true
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster == logicalcluster.Root || cluster == logicalcluster.Shard {
		return true
	}
	if bound, ok := d.bindings.Get(ctx, gr); ok && bound.Identity == identity {
		return true
	}
	own, err := d.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	return err == nil && own.DeletionTimestamp != nil
}

// findExported returns a resource as an export of this shard with the identity describes it, or nil.
func (d *dependencies) findExported(ctx context.Context, gr schema.GroupResource, identity string) (*bindings.Resource, error) {
	exports, err := d.exports.ListByIdentity(ctx, identity)
	if err != nil {
		return nil, err
	}
	for _, export := range exports {
		for _, resource := range export.Spec.Resources {
			if resource.Group != gr.Group || resource.Name != gr.Resource {
				continue
			}
			described, err := d.exports.GetSchema(ctx, logicalcluster.Of(export), resource.Schema)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading APIResourceSchema %q of %q: %w", resource.Schema, logicalcluster.Of(export), err)
			}
			return &bindings.Resource{
				GroupResource: gr, Export: apiindex.ExportKeyOf(export), Identity: identity,
				Schema: resource.Schema, SchemaUID: described.UID, Virtual: resource.Storage.Virtual != nil,
			}, nil
		}
	}
	return nil, nil
}

// bindingReserver returns what reserves the names of definitions that are about to be created.
func (d *dependencies) bindingReserver() *binding.Reserver {
	return &binding.Reserver{Clusters: d.logicalClusters, Client: d.clients.Typed, Clock: clock.RealClock{}}
}

// exportReferences adds the references to exports to the index of exports, for cached resources.
type exportReferences struct {
	*apiindex.Resolver
	d *dependencies
}

// Consumed implements cachedresources.Exports.
func (r exportReferences) Consumed(ctx context.Context, export *apisv1alpha2.APIExport) (bool, error) {
	if err := r.d.consumers.WaitForSync(ctx); err != nil {
		return false, err
	}
	return r.d.consumers.HasReferences(export), nil
}

// Locate implements cachedresources.Exports.
func (r exportReferences) Locate(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	return r.d.types.Locate(ctx, path)
}

// createCustomResources creates the handler of custom resources and adds the registry of the definitions of all logical
// clusters to the registry of resources.
func (d *dependencies) createCustomResources(context.Context) error {
	pool := crdstorage.NewPool(crdstorage.Options{
		Storage:                 d.options.Etcd.StorageConfig,
		Transformers:            d.restOptions.transformers,
		Meter:                   d.objectCounts,
		Guard:                   d.restOptions.guard,
		WatchCache:              d.options.Etcd.EnableWatchCache,
		GarbageCollection:       d.options.Etcd.EnableGarbageCollection,
		DeleteCollectionWorkers: d.options.Etcd.DeleteCollectionWorkers,
	})
	cfg := crdhandler.Config{
		Admission:           d.generic.AdmissionControl,
		Authorizer:          d.generic.Authorization.Authorizer,
		RequestTimeout:      d.generic.RequestTimeout,
		MinRequestTimeout:   time.Duration(d.generic.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: d.generic.MaxRequestBodyBytes,
		MaxLevels:           d.limits.Request,
		Paths:               crdpaths.Default,
		OpenAPI:             func() map[string]*spec.Schema { return d.groups.definitions.StaticOpenAPISpec },
	}
	d.definitions = crdregistry.New(crdregistry.Config{
		Resources:    d.registry,
		Specs:        d.groups.specs,
		Pool:         pool,
		Compile:      crdhandler.NewCompiler(cfg),
		BuiltIn:      d.groups.resources(),
		Reserved:     sets.New(systemResources...),
		Bindings:     d.bindings,
		FindExported: d.findExported,
	})
	d.registry.SetCustomResourceResolver(d.definitions)
	d.bindingDefinitions = definitions.New(definitions.Config{
		Registry: d.registry, Client: d.clients.Typed, Exports: d.exports, Bindings: d.bindings, Clock: clock.RealClock{},
	})
	d.customResources = crdhandler.NewHandler(d.definitions, cfg, d.generic.Serializer)
	if d.options.FeatureEnabled(options.GateCacheAPIs) && d.servesVirtualWorkspaces() {
		d.originals = replica.NewStore(pool, d.definitions)
		d.createReplicationView()
	}
	return nil
}

// createReplicationView creates the virtual workspace of cached resources, which also serves bound resources whose
// objects are not stored on this shard.
func (d *dependencies) createReplicationView() {
	d.replicationView = replication.New(replication.Config{
		Registry: d.registry, Exports: d.exports, References: exportReferences{d.exports, d}, Bindings: d.bindings, Authorizer: d.authorizer,
		Originals:  d.originals,
		Replicas:   func() *replica.Store { return d.replicas() },
		Documents:  func() (*discovery.Handler, *openapi.Handler) { return d.discovery, d.openapi },
		Serializer: d.generic.Serializer,
	})
	d.virtualStorage = virtualstorage.New(virtualstorage.Config{
		Registry: d.registry, Exports: d.exports, Bindings: d.bindings, Replication: d.replicationView,
		ShardName: d.options.Shard.Name, Serializer: d.generic.Serializer,
	})
	d.customResources.SetVirtual(d.virtualStorage)
}
