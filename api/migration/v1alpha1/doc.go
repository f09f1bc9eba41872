// Package v1alpha1 holds the API migration.kcp.io/v1alpha1: the LogicalClusterMigration, which moves a logical cluster
// to another shard, and the LogicalClusterDump by which the other shard reads its content. Types only; no behaviour of
// a server.
//
// +groupName=migration.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.migration.v1alpha1
package v1alpha1
