// Package mirror is what a shard knows of the others: every object that they have published in the cache server, decoded
// once, as storage.Elsewhere. It follows one stream per resource, whatever the number of shards and logical clusters, and
// survives a cache that is away, slow, emptied or replaced: what it knows is forgotten only when the shard that published
// it has said that everything it has is in that cache, and it is not.
//
// It also knows in which state this shard's own objects are in the cache, for package publish, which writes them. The
// mirror itself writes nothing but a copy of what it knows, in the shard's own etcd, so that a shard starts without a
// cache. It asks nobody while it is read.
package replica
