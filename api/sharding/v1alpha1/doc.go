// Package v1alpha1 holds the API sharding.kcp.io/v1alpha1: the messages that the shards of an installation exchange
// through the cache server. No shard writes into another; each publishes its requests and its state under its own name,
// and acts on what others publish (ADR 0030).
//
// These kinds exist only in cache servers. No logical cluster serves them, and no tenant can read or write them. Every
// object has one writer, the shard in whose part of the cache it is, which derives it from its own objects, so that a
// cache that lost its data is filled again. Types only; no behaviour of a server.
//
// +groupName=sharding.kcp.io
// +kubebuilder:object:generate=true
package v1alpha1
