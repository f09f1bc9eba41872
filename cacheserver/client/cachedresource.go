package client

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// CachedResource returns the resource under which a cache stores the objects of a ClusterCachedResource of that
// identity. The identity distinguishes ClusterCachedResources and proves nothing: shard and logical cluster identify
// the owner.
func CachedResource(gvr schema.GroupVersionResource, identity string) schema.GroupVersionResource {
	gvr.Resource += ":" + identity
	return gvr
}

// CompleteKind is the kind of the object by which a shard reports that all cached resources of a logical cluster are in
// the cache. It is stored as one of their objects, so that watches deliver it after them, and in a namespace, where
// there are no others: only cluster-scoped resources can be cached.
const CompleteKind = "Complete"

// CompleteNamespace is the namespace of that object.
const CompleteNamespace = "complete"

// MemberHeader is the header of requests for lists and watches that contain these objects. Without it, caches return them
// only to members of the groups of shards and caches.
const MemberHeader = "Kcp-Cache-Markers"

// CompleteKey returns the key of that object.
func CompleteKey(shard string, cluster logicalcluster.Name) Key {
	return Key{Shard: shard, Cluster: cluster, Namespace: CompleteNamespace, Name: "complete"}
}
