package shardserver

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	kcpapis "github.com/atoll-dev/atoll/shardserver/apis/apis"
	"github.com/atoll-dev/atoll/shardserver/apis/builtin"
	kcpcache "github.com/atoll-dev/atoll/shardserver/apis/cache"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers kcp's own types in the scheme
	kcprbac "github.com/atoll-dev/atoll/shardserver/apis/rbac"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
	kcptenancy "github.com/atoll-dev/atoll/shardserver/apis/tenancy"
	kcptopology "github.com/atoll-dev/atoll/shardserver/apis/topology"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// apiGroups are all APIs of the shard, ready to be installed.
type apiGroups struct {
	core  *genericapiserver.APIGroupInfo
	named []*genericapiserver.APIGroupInfo
	// definitions is the one of named that serves customresourcedefinitions, shared what those have in common in memory.
	definitions *genericapiserver.APIGroupInfo
	shared      *apiextensions.Shared
}

// newAPIGroups creates the storage of every API, in the order that identities demand: the core group first, in whose
// secrets or config maps they are, then what is keyed by them. It fills the registry.
func newAPIGroups(ctx context.Context, cfg builtin.Config, options *restOptions, resources *storage.Registry, authorizer *authorization.Authorizer, identify identifier) (*apiGroups, error) {
	coreInfo, err := builtin.Core(cfg, options)
	if err != nil {
		return nil, err
	}
	if options.identities, err = identify(ctx, coreInfo.VersionedResourcesStorageMap["v1"]); err != nil {
		for _, store := range coreInfo.VersionedResourcesStorageMap["v1"] {
			store.Destroy() // nobody else knows it yet, and its watches would hold up etcd
		}
		return nil, err
	}
	named, err := builtin.Named(cfg, options)
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
	topologyStorages, err := kcptopology.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", topologyv1alpha1.SchemeGroupVersion.Group, err)
	}
	apisStorages, err := kcpapis.Storages(options)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", apisv1alpha2.SchemeGroupVersion.Group, err)
	}
	shared := apiextensions.NewShared()
	definitions, err := apiextensions.NewStorage(options, shared)
	if err != nil {
		return nil, fmt.Errorf("creating group %s: %w", apiextensions.Definitions.Group, err)
	}
	groups := &apiGroups{core: &coreInfo, definitions: &definitions, shared: shared, named: append(named, &rbac, &definitions,
		ownGroup(corev1alpha1.SchemeGroupVersion, coreStorages),
		ownGroup(tenancyv1alpha1.SchemeGroupVersion, tenancyStorages),
		ownGroup(topologyv1alpha1.SchemeGroupVersion, topologyStorages),
		ownGroupInVersions(apisv1alpha2.GroupName, apisStorages),
	)}
	if options.cacheAPIs {
		cacheStorages, err := kcpcache.Storages(options)
		if err != nil {
			return nil, fmt.Errorf("creating group %s: %w", cachev1alpha1.SchemeGroupVersion.Group, err)
		}
		groups.named = append(groups.named, ownGroup(cachev1alpha1.SchemeGroupVersion, cacheStorages))
	}
	return groups, groups.register(resources, options)
}

func ownGroup(version schema.GroupVersion, storages map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	return ownGroupInVersions(version.Group, map[string]map[string]rest.Storage{version.Version: storages})
}

func ownGroupInVersions(group string, storages map[string]map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(group, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.NegotiatedSerializer = registry.WithoutProtobuf(info.NegotiatedSerializer)
	info.VersionedResourcesStorageMap = storages
	return &info
}

func (g *apiGroups) all() []*genericapiserver.APIGroupInfo {
	return append([]*genericapiserver.APIGroupInfo{g.core}, g.named...)
}

// register makes every stored resource known to the shard's own readers.
func (g *apiGroups) register(resources *storage.Registry, options *restOptions) error {
	for _, info := range g.all() {
		group := info.PrioritizedVersions[0].Group
		for _, version := range info.PrioritizedVersions {
			for name, store := range info.VersionedResourcesStorageMap[version.Version] {
				readable, ok := store.(storage.Store)
				if !ok || strings.Contains(name, "/") {
					continue // a subresource, or a review that is never stored
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

func (g *apiGroups) install(server *genericapiserver.GenericAPIServer) error {
	if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, g.core); err != nil {
		return fmt.Errorf("installing the core group: %w", err)
	}
	if err := server.InstallAPIGroups(g.named...); err != nil {
		return fmt.Errorf("installing the API groups: %w", err)
	}
	return nil
}
