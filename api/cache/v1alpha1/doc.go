// Package v1alpha1 holds the API cache.kcp.io/v1alpha1: the ClusterCachedResource, by which a workspace publishes its
// objects of one resource for reading on all shards, the endpoint slice with their URLs for consumers, and the
// CachedObject of cache servers. It also names the annotations, finalizers, conditions and reasons that clients use.
// Types only; no behaviour of a server.
//
// +groupName=cache.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.cache.v1alpha1
package v1alpha1
