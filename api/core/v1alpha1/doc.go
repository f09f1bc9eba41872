// Package v1alpha1 contains the core.kcp.io/v1alpha1 API: LogicalCluster, the singleton object of every logical
// cluster, and Shard, the registration of a shard in the root workspace. It also defines the annotations, labels,
// finalizers, conditions and reasons that clients use. It contains no server code.
//
// +groupName=core.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.core.v1alpha1
package v1alpha1
