// Package copies keeps, on the shards of consumers, what workspaces of other shards offer by ClusterCachedResources: only
// what an export that is bound here shows, for as long as it is.
//
//	Source      what is copied: a resource, under an identity, of one logical cluster of one shard
//	Wanted      the controller that finds out which sources there have to be
//	Keeper      follows each of them in the cache and writes what it sees; runs in one replica of a shard
//	Store       serves the copies to consumers; runs in all replicas
//
// Copies lie in the shard's own etcd, in storages like those of custom resources, but beside the keys of everything that
// is the shard's own, and unknown to the registry: no controller ever takes them for objects of a logical cluster. So
// versions, watches and pages of them are those of any resource, all replicas agree, and a shard serves them without a
// cache, after a restart, too. What is not known completely is not served at all.
//
// What is copied elsewhere of this shard's objects is the matter of package offers.
package replica
