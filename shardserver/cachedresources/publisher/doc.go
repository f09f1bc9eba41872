// Package offers publishes in the cache server the objects that workspaces of this shard offer by ClusterCachedResources:
// under their own group and version, as "<resource>:<identity>", with the word that they are complete once they are. Where
// there is no other shard, nothing is published.
//
// The controller of ClusterCachedResources (package cachedresources) asks for it, and tells in their status what became of
// it. Copies are compared by the resource version of their originals, so that nothing is written twice. Changes of objects
// are seen by one watch per resource that is offered anywhere on the shard, in its watch cache.
//
// What other shards make of it is the matter of package copies.
package publisher
