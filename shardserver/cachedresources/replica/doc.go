// Package replica maintains, on the shards of consumers, replicas of the objects that ClusterCachedResources of other
// shards publish: only of those that an export bound on this shard serves, for as long as it is bound.
//
//	Source      the objects of one resource, under an identity, of one logical cluster of one shard
//	Controller  computes the required sources
//	Replicator  runs a reflector per source and writes the replicas; in one server of a shard
//	Store       serves the replicas to consumers; in all servers. A second one serves the originals of this shard
//
// Replicas are in the shard's own etcd, in storages like those of custom resources, but apart from the keys of the
// shard's own objects and unknown to the registry, so controllers never take them for objects of a logical cluster.
// Versions, watches and pages are those of any resource, all servers of a shard agree, and a shard serves them without
// a cache, also after a restart. Replicas that are not complete are not served.
//
// Publishing is in package publisher.
package replica
