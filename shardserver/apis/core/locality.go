package core

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Locality is the storage.Locality of shards: each of their logical clusters has a LogicalCluster, and objects of
// sharding.kcp.io, which shards exchange, are not stored in logical clusters.
var Locality = storage.Locality{
	LogicalClusters:    corev1alpha1.Resource("logicalclusters"),
	LogicalClusterName: corev1alpha1.LogicalClusterName,
	RemoteOnly:         func(resource schema.GroupResource) bool { return resource.Group == shardingv1alpha1.GroupName },
	Moves:              func(annotations map[string]string) bool { return movestate.Of(annotations).IsHidden() },
}
