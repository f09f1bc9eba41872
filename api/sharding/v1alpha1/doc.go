// Package v1alpha1 contains the types of the API sharding.kcp.io/v1alpha1: the messages that the shards of an
// installation exchange through the cache server. A shard does not write to other shards. It publishes its requests and
// its state under its own name, and acts on the published objects of other shards (ADR 0030).
//
// The objects exist only in cache servers. They are not served in logical clusters, and tenants cannot read or write
// them. Each object is written only by the shard that it is published by, which derives it from its own objects. A
// cache that lost its data is therefore filled again. The package contains no server code.
//
// +groupName=sharding.kcp.io
// +kubebuilder:object:generate=true
package v1alpha1
