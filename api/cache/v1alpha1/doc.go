// Package v1alpha1 contains the types of the API cache.kcp.io/v1alpha1: ClusterCachedResources publish the objects of a
// resource of a workspace for reading on all shards, ClusterCachedResourceEndpointSlices list their URLs for consumers,
// and CachedObjects are used by cache servers. It also defines the annotations, finalizers, conditions and reasons of
// these objects. The package contains no server code.
//
// +groupName=cache.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.cache.v1alpha1
package v1alpha1
