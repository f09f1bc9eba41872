// Package v1alpha1 holds the API core.kcp.io/v1alpha1: the LogicalCluster that every logical cluster contains, and the
// Shard that the root workspace lists for every shard. It also names the annotations, labels, finalizers, conditions
// and reasons that clients use. Types only; no behaviour of a server.
//
// +groupName=core.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.core.v1alpha1
package v1alpha1
