// Package metrics holds the metrics of a cache server in addition to those of every Kubernetes server. They are those
// of the process: a shard that embeds a cache exposes them, too.
package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/store"
)

const (
	namespace = "atoll"
	subsystem = "cache"
)

var (
	// Objects counts the objects of each shard by resource. Cached resources of users are counted together, as their
	// names are unbounded.
	Objects = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "objects", StabilityLevel: metrics.ALPHA,
		Help: "Objects in the cache, by shard and resource. Counted once a minute.",
	}, []string{"shard", "resource"})
	// Bytes is the size of the data of each shard in etcd.
	Bytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "bytes", StabilityLevel: metrics.ALPHA,
		Help: "Size of the data of each shard in etcd in bytes: current objects (present), and revisions replaced or deleted in the last ten minutes (replaced). Updated once a minute.",
	}, []string{"shard", "state"})
	// RefusedWrites counts writes beyond the limits of a shard.
	RefusedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were rejected because a shard has reached its limits, by shard.",
	}, []string{"shard"})
	// RemovedShards counts shards whose objects were garbage-collected.
	RemovedShards = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "removed_shards_total", StabilityLevel: metrics.ALPHA,
		Help: "Removed shards whose objects were deleted from the cache.",
	})
	// ParentConnected is 1 while all watches of the parent are open.
	ParentConnected = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_connected", StabilityLevel: metrics.ALPHA,
		Help: "Whether all watches of the parent cache are open (1). Meaningful in the leading replica of a cache with a parent only.",
	})
	// ParentPending counts objects that are to be synchronized with the parent.
	ParentPending = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_pending", StabilityLevel: metrics.ALPHA,
		Help: "Objects that are not synchronized with the parent cache yet, including failed ones.",
	})
	// ParentWrites counts synchronized objects.
	ParentWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Objects written to (up) and from (down) the parent cache.",
	}, []string{"direction"})
)

// Register registers the metrics once.
var Register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(Objects, Bytes, RefusedWrites, RemovedShards, ParentConnected, ParentPending, ParentWrites)
})

// ObjectLabels are the labels of Objects for a part.
func ObjectLabels(part store.Part) map[string]string {
	return map[string]string{"shard": part.Shard, "resource": client.MetricsGroupResource(part.GroupResource()).String()}
}
