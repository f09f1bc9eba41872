package migration

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// The metrics have no logical cluster as a label: the number of time series must not grow with the workspaces.
var (
	ends = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "atoll_logicalcluster_migrations_total",
		Help:           "Migrations of logical clusters that have ended, by result (completed, aborted, failed). Counted by the shard that stores the LogicalClusterMigrations.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	active = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "atoll_logicalcluster_migrations_active",
		Help:           "Migrations of logical clusters that have not ended, at the shard that stores them, by state: running, or stalled if nothing has changed for ten minutes (in the replica that runs the controllers).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
	refusedWrites = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "atoll_logicalcluster_migration_refused_writes_seconds",
		Help:           "How long a logical cluster has refused writes while it moved to this shard, as the destination sees it: from its request to pause until it serves, or has failed to take over.",
		Buckets:        []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30},
		StabilityLevel: metrics.ALPHA,
	})
	copiedBytes = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "atoll_logicalcluster_migration_copied_bytes_total",
		Help:           "Bytes of objects that this shard has copied from others, those that were copied again after a change included.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(ends, active, refusedWrites, copiedBytes)
}

// observePause measures how long writes were refused; not at all if the pause began in an earlier process.
func observePause(since time.Time) {
	if !since.IsZero() {
		refusedWrites.Observe(time.Since(since).Seconds())
	}
}

func countCopied(entries []transfer.Entry) {
	for _, entry := range entries {
		copiedBytes.Add(float64(len(entry.Value)))
	}
}
