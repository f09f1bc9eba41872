package install

import (
	"k8s.io/apimachinery/pkg/runtime"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
)

// addInternalTopology registers the internal versions of topology.kcp.io and cache.kcp.io.
func addInternalTopology(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(internalVersion(topologyv1alpha1.GroupName),
		&topologyv1alpha1.Partition{}, &topologyv1alpha1.PartitionList{},
		&topologyv1alpha1.PartitionSet{}, &topologyv1alpha1.PartitionSetList{})
	scheme.AddKnownTypes(internalVersion(cachev1alpha1.GroupName),
		&cachev1alpha1.ClusterCachedResource{}, &cachev1alpha1.ClusterCachedResourceList{},
		&cachev1alpha1.ClusterCachedResourceEndpointSlice{}, &cachev1alpha1.ClusterCachedResourceEndpointSliceList{})
}

// DefaultClusterCachedResource sets defaults.
func DefaultClusterCachedResource(resource *cachev1alpha1.ClusterCachedResource) {
	if resource.Status.Phase == "" {
		resource.Status.Phase = cachev1alpha1.ClusterCachedResourcePhaseInitializing
	}
}

func addCacheDefaults(scheme *runtime.Scheme) {
	scheme.AddTypeDefaultingFunc(&cachev1alpha1.ClusterCachedResource{}, func(obj any) { DefaultClusterCachedResource(obj.(*cachev1alpha1.ClusterCachedResource)) })
	scheme.AddTypeDefaultingFunc(&cachev1alpha1.ClusterCachedResourceList{}, func(obj any) {
		items := obj.(*cachev1alpha1.ClusterCachedResourceList).Items
		for i := range items {
			DefaultClusterCachedResource(&items[i])
		}
	})
}
