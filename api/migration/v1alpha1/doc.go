// Package v1alpha1 contains the migration.kcp.io/v1alpha1 API: LogicalClusterMigration, which moves a logical cluster
// to another shard, and LogicalClusterDump, through which the destination shard reads the content. It contains no
// server code.
//
// +groupName=migration.kcp.io
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kcp.migration.v1alpha1
package v1alpha1
