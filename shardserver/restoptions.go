package shardserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// customResourceSegment stands in the keys of objects that kcp keeps as custom resources of a system definition.
const customResourceSegment = "customresources"

// kcpResources are our own types. They are stored as JSON, as custom resources would be.
var kcpResources = []schema.GroupResource{
	corev1alpha1.Resource("logicalclusters"), corev1alpha1.Resource("shards"),
	tenancyv1alpha1.Resource("workspaces"), tenancyv1alpha1.Resource("workspacetypes"),
	tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"),
	topologyv1alpha1.Resource("partitions"), topologyv1alpha1.Resource("partitionsets"),
	cachev1alpha1.Resource("clustercachedresources"), cachev1alpha1.Resource("clustercachedresourceendpointslices"),
	apisv1alpha2.Resource("apiexports"), apisv1alpha2.Resource("apibindings"), apisv1alpha2.Resource("apiresourceschemas"),
	apisv1alpha2.Resource("apiexportendpointslices"), apisv1alpha2.Resource("apiconversions"),
}

// systemResources are those of them that every logical cluster has without a binding, and that no identity keeps apart.
var systemResources = []schema.GroupResource{
	corev1alpha1.Resource("logicalclusters"),
	cachev1alpha1.Resource("clustercachedresources"), cachev1alpha1.Resource("clustercachedresourceendpointslices"),
	apisv1alpha2.Resource("apiexports"), apisv1alpha2.Resource("apibindings"), apisv1alpha2.Resource("apiresourceschemas"),
	apisv1alpha2.Resource("apiexportendpointslices"), apisv1alpha2.Resource("apiconversions"),
}

// restOptions gives every registry its storage: the key layout of the contract, our decorator (wall W4), one watch
// cache per resource (wall W3).
type restOptions struct {
	options *genericoptions.EtcdOptions
	factory *serverstorage.DefaultStorageFactory
	// identities are the hashes of the root exports, by resource. Filled before the resource is installed.
	identities map[schema.GroupResource]string
	// transformers encrypt at rest, if configured.
	transformers storagevalue.ResourceTransformers
	// cacheAPIs tells whether cache.kcp.io is served (feature gate CacheAPIs).
	cacheAPIs bool
	// shared is what objects of all logical clusters have in common in memory.
	shared *storage.Shared
}

func newRESTOptions(options *genericoptions.EtcdOptions, resources *serverstorage.ResourceConfig) (*restOptions, error) {
	factoryConfig := kubeapiserver.NewStorageFactoryConfig()
	factoryConfig.APIResourceConfig = resources
	factory, err := factoryConfig.Complete(options).New()
	if err != nil {
		return nil, fmt.Errorf("creating the storage factory: %w", err)
	}
	for _, resource := range kcpResources {
		factory.SetSerializer(resource, runtime.ContentTypeJSON, legacyscheme.Codecs)
	}
	return &restOptions{options: options, factory: factory, identities: map[schema.GroupResource]string{}, shared: storage.NewShared()}, nil
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
	config.Codec = r.shared.Codec(config.Codec, longTexts)
	prefix, err := r.prefix(resource)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	decorator := storage.WithCache()
	if resource.Resource == "events" || !r.options.EnableWatchCache {
		// Events are many, short-lived and rarely watched: a cache of them would cost more than it gives.
		decorator = storage.WithoutCache()
	}
	return generic.RESTOptions{
		StorageConfig:             config,
		Decorator:                 decorator,
		DeleteCollectionWorkers:   r.options.DeleteCollectionWorkers,
		EnableGarbageCollection:   r.options.EnableGarbageCollection,
		ResourcePrefix:            prefix,
		CountMetricPollPeriod:     r.options.StorageConfig.CountMetricPollPeriod,
		StorageObjectCountTracker: config.StorageObjectCountTracker,
	}, nil
}

// longTexts returns what is worth sharing of an object between logical clusters: every namespace has the certificates of
// the shard in a config map.
func longTexts(obj runtime.Object) map[string]string {
	if configMap, ok := obj.(*core.ConfigMap); ok {
		return configMap.Data
	}
	return nil
}

// prefix returns "<group or core>/<resource>", with the segment that tells kinds of custom resources apart.
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
		return "", fmt.Errorf("the identity of the export behind %s is not known yet", resource)
	}
	return prefix + "/" + identity, nil
}
