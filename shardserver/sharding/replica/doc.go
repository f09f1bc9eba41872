// Package replica is the replica informer of a shard: an informer of all objects that other shards have published in
// the cache server. It decodes each object once and serves them as storage.RemoteStore. It runs one reflector per
// resource, whatever the number of shards and logical clusters.
//
// It tolerates a cache that is unavailable, slow, emptied or replaced: an object is deleted only when its shard has
// reported that its part of the cache is complete, and the object is not in it. Until all shards have reported so, the
// absence of an object proves nothing (CheckSynced).
//
// The informer also tracks the published state of this shard's own objects for package publisher, which writes them. It
// writes nothing to the cache. It keeps a snapshot of its objects in the shard's own etcd, so that a shard starts
// without a cache. Reads never leave the process.
package replica
