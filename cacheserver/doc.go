// Package cacheserver is the cache server: where the shards of an installation publish what the others must know, below
// /services/cache/shards/<shard>/clusters/<logical cluster>/. It is a server of its own (New) or a handler below the chain
// of a shard (NewHandler).
//
// A cache keeps copies and understands none of them: it has no schemas, no admission, no watch cache. Package store keeps
// them in etcd, api serves them, garbage removes those of shards that are gone, and hierarchy carries them between the
// caches of regions. Nothing that a cache holds is lost for good when it is lost: publishers fill it again.
package cacheserver
