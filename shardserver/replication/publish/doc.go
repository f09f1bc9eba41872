// Package publish writes into the cache server what other shards must know of this one, under the name of this shard.
// What that is, sources say: a pure function from the shard's own objects to what stands in the cache. So everything is
// written again after the cache lost it, and a crash at any moment changes nothing. Nobody else writes there.
//
// Plain copies of objects are sources of this package; what is derived from them belongs to who derives it. What others
// have published is the matter of package mirror.
package publish
