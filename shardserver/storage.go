package shardserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/internal/restoremark"
	"github.com/atoll-dev/atoll/shardserver/apiexport/identity"
	kcpadmin "github.com/atoll-dev/atoll/shardserver/apis/admin"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	kcpapis "github.com/atoll-dev/atoll/shardserver/apis/apis"
	"github.com/atoll-dev/atoll/shardserver/apis/builtin"
	kcpcache "github.com/atoll-dev/atoll/shardserver/apis/cache"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers kcp's own types in the scheme
	kcpmigration "github.com/atoll-dev/atoll/shardserver/apis/migration"
	kcprbac "github.com/atoll-dev/atoll/shardserver/apis/rbac"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	kcptenancy "github.com/atoll-dev/atoll/shardserver/apis/tenancy"
	kcptopology "github.com/atoll-dev/atoll/shardserver/apis/topology"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// customResourceSegment is the key segment of objects that kcp stores as custom resources of a system definition.
const customResourceSegment = "customresources"

// kcpResources are kcp's own types. They are stored as JSON, as custom resources are.
var kcpResources = []schema.GroupResource{
	adminResource,
	corev1alpha1.Resource("logicalclusters"), corev1alpha1.Resource("shards"),
	tenancyv1alpha1.Resource("workspaces"), tenancyv1alpha1.Resource("workspacetypes"),
	tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"),
	topologyv1alpha1.Resource("partitions"), topologyv1alpha1.Resource("partitionsets"),
	cachev1alpha1.Resource("clustercachedresources"), cachev1alpha1.Resource("clustercachedresourceendpointslices"),
	migrationv1alpha1.Resource("logicalclustermigrations"),
	apisv1alpha2.Resource("apiexports"), apisv1alpha2.Resource("apibindings"), apisv1alpha2.Resource("apiresourceschemas"),
	apisv1alpha2.Resource("apiexportendpointslices"), apisv1alpha2.Resource("apiconversions"),
}

// adminResource is stored in root, and served by the admin workspace only.
var adminResource = adminv1alpha1.Resource("permissionclaimpolicies")

// systemResources are the kcpResources that every logical cluster serves without a binding, except for adminResource. Their keys have no identity.
var systemResources = []schema.GroupResource{
	adminResource,
	corev1alpha1.Resource("logicalclusters"),
	cachev1alpha1.Resource("clustercachedresources"), cachev1alpha1.Resource("clustercachedresourceendpointslices"),
	apisv1alpha2.Resource("apiexports"), apisv1alpha2.Resource("apibindings"), apisv1alpha2.Resource("apiresourceschemas"),
	apisv1alpha2.Resource("apiexportendpointslices"), apisv1alpha2.Resource("apiconversions"),
}

// largeResources have large objects in etcd that are small in a watch cache, where equal specifications are shared.
var largeResources = []schema.GroupResource{apiextensions.Definitions, apisv1alpha2.Resource("apiresourceschemas")}

// togetherResources are those of what a new workspace has.
var togetherResources = []schema.GroupResource{
	{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "configmaps"},
	{Group: rbac.GroupName, Resource: "clusterrolebindings"},
	apisv1alpha2.Resource("apibindings"),
}

// largePageSize is the page size of reading them from etcd.
const largePageSize = 500

// restOptions configures the storage of every registry: the key layout of the contract, the decorator that adds the
// logical cluster (wall W4), one watch cache per resource (wall W3).
type restOptions struct {
	options *genericoptions.EtcdOptions
	factory *serverstorage.DefaultStorageFactory
	// identities are the identity hashes of the exports of root by resource, set before these resources are created.
	identities map[schema.GroupResource]string
	// transformers encrypt at rest, if configured.
	transformers storagevalue.ResourceTransformers
	// cacheAPIs is true if cache.kcp.io is served (feature gate CacheAPIs).
	cacheAPIs bool
	// migrations is true if logical clusters can move to other shards (feature gate LogicalClusterMigration).
	migrations bool
	// interner holds content that objects of all logical clusters share in memory.
	interner *storage.Interner
	// meter counts the bytes that are written.
	meter storage.Meter
	// transactions is the etcd client for creations of one logical cluster that are stored together; it is closed with the keys.
	transactions *clientv3.Client
	// guard refuses writes to logical clusters that move; nil where none do.
	guard storage.Guard
}

func newRESTOptions(options *genericoptions.EtcdOptions, resources *serverstorage.ResourceConfig, stored runtime.StorageSerializer) (*restOptions, error) {
	factoryConfig := kubeapiserver.NewStorageFactoryConfig()
	factoryConfig.Serializer = stored
	factoryConfig.APIResourceConfig = resources
	factory, err := factoryConfig.Complete(options).New()
	if err != nil {
		return nil, fmt.Errorf("creating the storage factory: %w", err)
	}
	for _, resource := range kcpResources {
		factory.SetSerializer(resource, runtime.ContentTypeJSON, stored)
	}
	return &restOptions{options: options, factory: factory, identities: map[schema.GroupResource]string{}, interner: storage.NewInterner()}, nil
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r *restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := r.factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("finding the storage of %s: %w", resource, err)
	}
	if r.transformers != nil {
		config.Transformer = r.transformers.TransformerForResource(resource)
	}
	config.Transformer = storage.WithMeter(config.Transformer, r.meter)
	config.Codec = r.interner.Codec(config.Codec, internableStrings)
	if slices.Contains(definitionResources, resource) {
		config.Codec = storage.WithMaxSize(config.Codec, resource, maxStoredDefinitionBytes)
	}
	prefix, err := r.prefix(resource)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	cache := storage.CacheOptions{}
	if slices.Contains(largeResources, resource) {
		cache.MaxPageSize = largePageSize
	}
	if slices.Contains(togetherResources, resource) {
		cache.Transactions = r.transactions
	}
	decorator := storage.WithCache(cache)
	if resource.Resource == "events" || !r.options.EnableWatchCache {
		// Events are many, short-lived and rarely watched: a watch cache costs more than it saves.
		decorator = storage.WithoutCache()
	}
	return generic.RESTOptions{
		StorageConfig:             config,
		Decorator:                 storage.WithGuard(decorator, r.guard),
		DeleteCollectionWorkers:   r.options.DeleteCollectionWorkers,
		EnableGarbageCollection:   r.options.EnableGarbageCollection,
		ResourcePrefix:            prefix,
		CountMetricPollPeriod:     r.options.StorageConfig.CountMetricPollPeriod,
		StorageObjectCountTracker: config.StorageObjectCountTracker,
	}, nil
}

// internableStrings returns the strings of an object that logical clusters share: every namespace has a config map with the root
// CA of the shard.
func internableStrings(obj runtime.Object) map[string]string {
	if configMap, ok := obj.(*core.ConfigMap); ok {
		return configMap.Data
	}
	return nil
}

// prefix returns "<group or core>/<resource>", and for kcp's own types the segment of their identity.
func (r *restOptions) prefix(resource schema.GroupResource) (string, error) {
	group := resource.Group
	if group == "" {
		group = "core"
	}
	prefix := group + "/" + resource.Resource
	if !slices.Contains(kcpResources, resource) {
		return prefix, nil
	}
	if slices.Contains(systemResources, resource) {
		return prefix + "/" + customResourceSegment, nil
	}
	identity, ok := r.identities[resource]
	if !ok {
		return "", fmt.Errorf("the identity of the export behind %s is not set", resource)
	}
	return prefix + "/" + identity, nil
}

// claimKeys claims the keys of this shard, and those of the cache server that it embeds, before anything reads or writes
// them. While another owner has them, the secure port answers with the reason.
func (d *dependencies) claimKeys(ctx context.Context) error {
	config := d.options.Etcd.StorageConfig
	etcd, err := etcdkeys.Connect(config.Transport)
	if err != nil {
		return err
	}
	defer etcd.Close()
	prefixes := []string{config.Prefix}
	if d.embedsCache() {
		prefixes = append(prefixes, reservedkeys.EmbeddedCache(config.Prefix))
	}
	if err := etcdowner.Acquire(ctx, etcd, d.generic.SecureServing, d.options.EtcdOwner, prefixes...); err != nil {
		return explainStorageError(err, config.Transport)
	}
	d.restored, err = restoremark.Read(ctx, etcd, config.Prefix)
	return explainStorageError(err, config.Transport)
}

// followRestore follows the mark of a restored shard until it is released. It ends at once in a shard that was not restored.
func (d *dependencies) followRestore(ctx context.Context) {
	if !d.restored.Held() {
		return
	}
	etcd, err := d.keys.Connect()
	if err != nil { // of its files, which were read before
		klog.FromContext(ctx).Error(err, "Failed to follow the release of the restored keys; restart the shard after it")
		return
	}
	d.restored.Follow(ctx, etcd, d.options.Etcd.StorageConfig.Prefix, restoremark.RetryInterval)
}

// startFence registers this process as a replica of the shard, so that a move of a logical cluster waits for its writes.
func (d *dependencies) startFence(ctx context.Context) error {
	if !d.options.FeatureEnabled(options.GateLogicalClusterMigration) {
		return nil
	}
	config := d.options.Etcd.StorageConfig
	etcd, err := etcdkeys.Connect(config.Transport)
	if err != nil {
		return err
	}
	d.fence, err = fence.Start(ctx, fence.Config{
		Registry: d.registry, Etcd: etcd, Prefix: config.Prefix, Restored: d.restored.Held() && !d.restored.IsConfirmed(), Leave: d.usage.FlushLeaving,
	})
	if err != nil {
		_ = etcd.Close()
		return explainStorageError(err, config.Transport)
	}
	return nil
}

// apiGroups are all APIs of the shard, ready to be installed.
type apiGroups struct {
	core  *genericapiserver.APIGroupInfo
	named []*genericapiserver.APIGroupInfo
	// definitions is the member of named that serves customresourcedefinitions, shared their common content in memory.
	definitions *genericapiserver.APIGroupInfo
	// admin are the storages that the admin workspace alone serves.
	admin *genericapiserver.APIGroupInfo
	specs *apiextensions.SpecInterner
}

// createGroups creates the storage of every API and fills the registry.
func (d *dependencies) createGroups(ctx context.Context) (err error) {
	d.groups, err = d.newGroups(ctx, builtin.Config{
		Resources:          d.generic.MergedResourceConfig,
		EventTTL:           d.options.EventTTL,
		Authenticator:      d.generic.Authentication.Authenticator,
		APIAudiences:       d.generic.Authentication.APIAudiences,
		Authorizer:         d.authorizer,
		RuleResolver:       d.authorizer,
		ResolveResource:    resourceForKind(d.registry),
		TokenIssuer:        d.tokenIssuer,
		TokenMaxExpiration: d.options.Authentication.ServiceAccounts.MaxExpiration,
		ExtendTokens:       d.options.Authentication.ServiceAccounts.ExtendExpiration,
		TokenMaxExtension:  d.options.Authentication.ServiceAccounts.MaxExtendedExpiration,
	})
	return explainStorageError(err, d.options.Etcd.StorageConfig.Transport)
}

// resourceForKind returns a function that returns the name under which the context's logical cluster serves a kind, or "" if it
// does not.
func resourceForKind(registry *storage.Registry) func(context.Context, schema.GroupKind) (string, error) {
	return func(ctx context.Context, kind schema.GroupKind) (string, error) {
		resource, err := registry.ResolveKind(ctx, kind)
		if err != nil || resource == nil {
			return "", err
		}
		return resource.GVR.Resource, nil
	}
}

// newGroups creates the core group first, whose secrets or config maps hold the identities of the exports of root, then
// the groups whose keys contain these identities.
func (d *dependencies) newGroups(ctx context.Context, cfg builtin.Config) (*apiGroups, error) {
	options, authorizer := d.restOptions, d.authorizer
	coreInfo, err := builtin.NewCoreGroup(cfg, options)
	if err != nil {
		return nil, err
	}
	if options.identities, err = d.rootIdentities(ctx, coreInfo.VersionedResourcesStorageMap["v1"]); err != nil {
		for _, store := range coreInfo.VersionedResourcesStorageMap["v1"] {
			store.Destroy() // it is not in the registry yet, and its watches would delay the end of etcd
		}
		return nil, err
	}
	named, err := builtin.NewNamedGroups(cfg, options)
	if err != nil {
		return nil, err
	}
	rbac, err := kcprbac.NewStorage(options, authorizer, authorizer.RuleResolver())
	if err != nil {
		return nil, fmt.Errorf("creating the RBAC group: %w", err)
	}
	coreStorages, err := kcpcore.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", corev1alpha1.SchemeGroupVersion.Group, err)
	}
	tenancyStorages, err := kcptenancy.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", tenancyv1alpha1.SchemeGroupVersion.Group, err)
	}
	if workspaces, ok := tenancyStorages["workspaces"].(*registry.REST); ok {
		workspaces.Storage.Storage = d.placer.Storage(workspaces.Storage.Storage)
	}
	topologyStorages, err := kcptopology.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", topologyv1alpha1.SchemeGroupVersion.Group, err)
	}
	apisStorages, err := kcpapis.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", apisv1alpha2.SchemeGroupVersion.Group, err)
	}
	adminStorages, err := kcpadmin.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", adminv1alpha1.SchemeGroupVersion.Group, err)
	}
	shared := apiextensions.NewSpecInterner()
	definitions, err := apiextensions.NewStorage(options, shared)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", apiextensions.Definitions.Group, err)
	}
	groups := &apiGroups{core: &coreInfo, definitions: &definitions, admin: newGroupInfo(adminv1alpha1.SchemeGroupVersion, adminStorages), specs: shared, named: append(named, &rbac, &definitions,
		newGroupInfo(corev1alpha1.SchemeGroupVersion, coreStorages),
		newGroupInfo(tenancyv1alpha1.SchemeGroupVersion, tenancyStorages),
		newGroupInfo(topologyv1alpha1.SchemeGroupVersion, topologyStorages),
		newGroupInfoForVersions(apisv1alpha2.GroupName, apisStorages),
	)}
	if options.cacheAPIs {
		cacheStorages, err := kcpcache.Storages(options)
		if err != nil {
			return nil, fmt.Errorf("creating group %s: %w", cachev1alpha1.SchemeGroupVersion.Group, err)
		}
		groups.named = append(groups.named, newGroupInfo(cachev1alpha1.SchemeGroupVersion, cacheStorages))
	}
	if options.migrations {
		migrationStorages, err := kcpmigration.Storages(options)
		if err != nil {
			return nil, fmt.Errorf("creating group %s: %w", migrationv1alpha1.SchemeGroupVersion.Group, err)
		}
		groups.named = append(groups.named, newGroupInfo(migrationv1alpha1.SchemeGroupVersion, migrationStorages))
	}
	for _, info := range groups.named {
		info.PrioritizedVersions = slices.DeleteFunc(info.PrioritizedVersions, func(version schema.GroupVersion) bool {
			return len(info.VersionedResourcesStorageMap[version.Version]) == 0 // the API server would warn of each
		})
	}
	for _, info := range groups.stored() {
		info.NegotiatedSerializer = d.checker.Serializer(info.NegotiatedSerializer, d.limits.Request)
	}
	return groups, groups.register(d.registry, options)
}

// rootIdentities returns the identity hashes of the exports of root by resource: the root shard creates them, others fetch
// them from it once.
func (d *dependencies) rootIdentities(ctx context.Context, core map[string]rest.Storage) (map[schema.GroupResource]string, error) {
	if d.options.IsRoot() {
		return identity.EnsureRootIdentities(ctx, core["secrets"], d.options.Shard.RootIdentitiesFile)
	}
	root, err := d.join(ctx, core["configmaps"])
	if err != nil {
		return nil, err
	}
	d.root = root
	return root.identities.ByResource(), nil
}

func newGroupInfo(version schema.GroupVersion, storages map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	return newGroupInfoForVersions(version.Group, map[string]map[string]rest.Storage{version.Version: storages})
}

func newGroupInfoForVersions(group string, storages map[string]map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(group, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.NegotiatedSerializer = registry.WithoutProtobuf(info.NegotiatedSerializer)
	info.VersionedResourcesStorageMap = storages
	return &info
}

func (g *apiGroups) all() []*genericapiserver.APIGroupInfo {
	return append([]*genericapiserver.APIGroupInfo{g.core}, g.named...)
}

// stored returns the groups whose resources are stored, served by logical clusters or not.
func (g *apiGroups) stored() []*genericapiserver.APIGroupInfo { return append(g.all(), g.admin) }

// register adds every stored resource to the registry.
func (g *apiGroups) register(resources *storage.Registry, options *restOptions) error {
	for _, info := range g.stored() {
		group := info.PrioritizedVersions[0].Group
		for _, version := range info.PrioritizedVersions {
			for name, store := range info.VersionedResourcesStorageMap[version.Version] {
				readable, ok := store.(storage.Store)
				if !ok || strings.Contains(name, "/") {
					continue // a subresource, or a review, which is not stored
				}
				if group == "events.k8s.io" {
					continue // the same objects as core events
				}
				kinds, _, err := legacyscheme.Scheme.ObjectKinds(store.New())
				if err != nil {
					return fmt.Errorf("finding the kind of %s: %w", name, err)
				}
				prefix, err := options.prefix(schema.GroupResource{Group: group, Resource: name})
				if err != nil {
					return err
				}
				scoper, _ := store.(rest.Scoper)
				_, deletable := store.(rest.GracefulDeleter)
				resources.Add(&storage.Resource{
					GVR:        version.WithResource(name),
					Kind:       version.WithKind(kinds[0].Kind),
					Namespaced: scoper != nil && scoper.NamespaceScoped(),
					Prefix:     "/" + prefix,
					Store:      readable,
					Deletable:  deletable,
				})
			}
		}
	}
	return nil
}

// resources returns all resources that are compiled in, stored or not.
func (g *apiGroups) resources() sets.Set[schema.GroupResource] {
	resources := sets.New[schema.GroupResource]()
	for _, info := range g.all() {
		for _, storages := range info.VersionedResourcesStorageMap {
			for name := range storages {
				resource, _, _ := strings.Cut(name, "/")
				resources.Insert(schema.GroupResource{Group: info.PrioritizedVersions[0].Group, Resource: resource})
			}
		}
	}
	return resources
}

func (g *apiGroups) install(server *genericapiserver.GenericAPIServer) error {
	if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, g.core); err != nil {
		return fmt.Errorf("installing the core group: %w", err)
	}
	if err := server.InstallAPIGroups(g.named...); err != nil {
		return fmt.Errorf("installing the API groups: %w", err)
	}
	// The server closes the storage of what it serves itself; a virtual workspace serves this group.
	for _, storages := range g.admin.VersionedResourcesStorageMap {
		for _, store := range storages {
			server.RegisterDestroyFunc(store.Destroy)
		}
	}
	return nil
}
