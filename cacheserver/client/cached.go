package client

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// CachedResource returns under which name a cache has the objects of a resource that a ClusterCachedResource of that
// identity offers. The identity tells offers apart and proves nothing: whose objects are meant, shard and logical cluster
// say.
func CachedResource(gvr schema.GroupVersionResource, identity string) schema.GroupVersionResource {
	gvr.Resource += ":" + identity
	return gvr
}

// CompleteKind is the kind of the object by which a shard says that everything which a logical cluster offers is in the
// cache. It stands beside the objects, so that whoever follows those learns of it in its place, after them; and in a
// namespace, where none of them can be, because only resources without namespaces can be offered.
const CompleteKind = "Complete"

// CompleteKey returns where that object stands.
func CompleteKey(shard string, cluster logicalcluster.Name) Key {
	return Key{Shard: shard, Cluster: cluster, Namespace: "complete", Name: "complete"}
}
