// Package cachedresources contains the controllers of cache.kcp.io: of ClusterCachedResources, with which a workspace
// publishes the objects of one of its resources read-only to other logical clusters, and of
// ClusterCachedResourceEndpointSlices, whose status has the URLs at which an export serves them to its consumers.
//
// On their own shard, the objects are not replicated: the replication virtual workspace (virtual/replication) reads the
// originals, with the schema of the export. Other shards read replicas (package replica), which this shard publishes (package publisher). Consumers
// read them through the virtual storage of an export (package virtualstorage).
package cachedresources
