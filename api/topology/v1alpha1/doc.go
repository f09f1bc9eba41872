// Package v1alpha1 contains the topology.kcp.io/v1alpha1 API: Partition, a subset of the shards of an installation, and
// PartitionSet, which generates Partitions. It also defines the conditions and reasons that clients use. It contains no
// server code.
//
// +groupName=topology.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.topology.v1alpha1
package v1alpha1
