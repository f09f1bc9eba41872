// Package sharedindex is an index of an installation in etcd: the shard of each logical cluster, and the destinations
// of workspaces. Shards write it and front proxies read it. Such a proxy watches one prefix of one etcd instead of
// every shard, and starts while shards are down, including the root shard.
//
// Each shard writes below its own prefix <prefix>/<shard>/; only the records of the root shard define which shards
// exist. All records are derived from the shard's own objects, so that an etcd that lost its data is filled again.
// Readers keep their state while etcd is down, and treat a missing record as deleted only if the shard has marked its
// records as complete.
//
// This package defines the keys, the access to etcd and the order of events. Package shardserver/sharding/routing
// produces the records, package proxy/shards interprets them.
package sharedindex
