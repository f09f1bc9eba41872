// Package cachedresources holds the controllers of cache.kcp.io: ClusterCachedResources, by which a workspace offers the
// objects of one of its resources for reading elsewhere, and ClusterCachedResourceEndpointSlices, which say where an
// export shows them to its consumers.
//
// On the shard that has them, objects are not copied: the replication virtual workspace (virtual/replication) reads them
// where they are. Other shards read copies (package replication/copies), which are published from here (Publisher, package
// replication/offers). What consumers see is read through the virtual storage of an export (package virtualstorage).
package cachedresources
