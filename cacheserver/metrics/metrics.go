// Package metrics holds the series of a cache server beside those of every Kubernetes server. They are those of the
// process: a shard that embeds a cache shows them, too.
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
	// Objects counts what each shard has published, by resource. Cached resources of users count together, as shards name
	// them as they like.
	Objects = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "objects", StabilityLevel: metrics.ALPHA,
		Help: "Objects in the cache, by shard and resource. Counted once a minute.",
	}, []string{"shard", "resource"})
	// Bytes is what etcd holds because of each shard.
	Bytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "bytes", StabilityLevel: metrics.ALPHA,
		Help: "What etcd holds because of each shard, in bytes: what is there (present), and what the shard has replaced or removed in the last ten minutes (replaced). Looked at once a minute.",
	}, []string{"shard", "state"})
	// RefusedWrites counts what shards wanted to have beyond their bounds.
	RefusedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were refused because a shard has as much in the cache as it may, by shard.",
	}, []string{"shard"})
	// RemovedShards counts shards whose objects were removed.
	RemovedShards = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "removed_shards_total", StabilityLevel: metrics.ALPHA,
		Help: "Shards that are gone and whose objects were removed from the cache.",
	})
	// ParentConnected is 1 while this cache follows its parent in full.
	ParentConnected = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_connected", StabilityLevel: metrics.ALPHA,
		Help: "Whether all streams from the parent cache are open. Absent, or 0 in a replica that does not lead, without meaning.",
	})
	// ParentPending counts objects that are to be carried to or from the parent.
	ParentPending = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_pending", StabilityLevel: metrics.ALPHA,
		Help: "Objects that are to be looked at for the parent cache, or were and failed.",
	})
	// ParentWrites counts what was carried.
	ParentWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "parent_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Objects written to (up) and from (down) the parent cache.",
	}, []string{"direction"})
)

// Register adds the series to those of the process, once.
var Register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(Objects, Bytes, RefusedWrites, RemovedShards, ParentConnected, ParentPending, ParentWrites)
})

// ObjectLabels are the labels of Objects for a part.
func ObjectLabels(part store.Part) map[string]string {
	return map[string]string{"shard": part.Shard, "resource": client.Counted(part.GroupResource()).String()}
}
