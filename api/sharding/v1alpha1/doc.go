// Package v1alpha1 holds the API sharding.kcp.io/v1alpha1: what the shards of an installation tell one another through the
// cache server. No shard writes into another; each publishes what it wants and what it has under its own name, and acts on
// what others published (ADR 0030).
//
// These kinds exist in cache servers alone. No logical cluster serves them, and no tenant can read or write them. Every
// object has one writer, the shard in whose part of the cache it stands, which derives it from its own objects: a cache
// that lost everything is filled again. Types only; no behaviour of a server.
//
// +groupName=sharding.kcp.io
// +kubebuilder:object:generate=true
package v1alpha1
