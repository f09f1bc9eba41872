// Package sharedindex is the index of an installation that shards write into an etcd and front proxies read from there:
// which shard has which logical cluster, and where workspaces lead. A proxy that reads it watches one prefix of one etcd
// instead of every shard, and starts while shards are down, the root shard too.
//
// Each shard writes below a prefix of its own, <prefix>/<shard>/, and nowhere else; what shards there are, the root shard
// says. What is there follows from the shard's own objects, so that an etcd that lost everything is filled again.
// Readers keep what they know while etcd is away, and take the absence of a record for its end only where its shard has
// said that its records are complete.
//
// This package knows keys, etcd and the order of things. Where records come from and what they mean for requests lives in
// shardserver/routing and proxy/shards.
package sharedindex
