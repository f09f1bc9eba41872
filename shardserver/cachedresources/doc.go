// Package cachedresources holds the controllers of cache.kcp.io: ClusterCachedResources, by which a workspace offers the
// objects of one of its resources for reading elsewhere, and ClusterCachedResourceEndpointSlices, which say where an
// export shows them to its consumers.
//
// On one shard nothing has to be copied: the replication virtual workspace (virtual/replication) reads the objects where
// they are, so that those and their copies are the same, and none outlives its original. What consumers see of them is
// read through the virtual storage of an export (package virtualstorage).
package cachedresources
