// Package dynamic runs the admission that tenants configure: webhooks, and admission policies written in CEL.
// Upstream's webhook plug-ins and policy dispatchers implement the semantics. This package provides their configuration
// (from the watch cache, for the logical cluster of the request, or for that of the export if the resource is bound)
// and the caches between requests.
//
// There is no state for a logical cluster without configurations; a request there costs one lookup in the watch cache.
// A logical cluster with configurations has an entry in a cache of bounded size. It is replaced as soon as the
// configurations change, and removed with the last one. Entries have no goroutine, informer or watch. Compiled policies
// are shared by all logical clusters with equal policies.
//
// A tenant's webhook receives no credentials of the shard, cannot redirect the request to another address, and cannot
// make the shard read an unbounded response.
package dynamic
