// Package v1alpha1 holds the API topology.kcp.io/v1alpha1: Partitions, which name a part of the shards of an
// installation, and the PartitionSets that generate them. It also names the conditions and reasons that clients use.
// Types only; no behaviour of a server.
//
// +groupName=topology.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.topology.v1alpha1
package v1alpha1
