// Package cacheserver is the cache server: shards of an installation publish in it the objects that other shards need,
// below /services/cache/shards/<shard>/clusters/<logical cluster>/. It is a server (New) or a handler below the chain
// of a shard (NewHandler).
//
// A cache stores copies without interpreting them: it has no schemas, no admission, no watch cache. Package store keeps
// them in etcd, api serves them, garbage deletes those of removed shards, and hierarchy synchronizes the caches of
// regions. A cache may lose its data: publishers restore it.
package cacheserver
