// Package publisher publishes in the cache server the objects that ClusterCachedResources of this shard select: under
// their own group and version, as "<resource>:<identity>", followed by a marker once they are complete.
//
// The controller of ClusterCachedResources (package cachedresources) calls it and reports the result in their status.
// An object is written only if the resource version of its original has changed. Changes are observed by one watch of
// the watch cache per resource, whatever the number of logical clusters.
//
// Replicas of objects of other shards are in package replica.
package publisher
