package objectcount

import (
	"context"
	"fmt"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// clusterLimit is the limit of one logical cluster.
type clusterLimit struct {
	limit int64
	own   bool
}

// scan counts the objects of all logical clusters with an object limit and removes entries that are not needed. If there is
// no object limit, it only reads the watch cache.
func (t *Tracker) scan(ctx context.Context) error {
	all, err := t.clusters.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return fmt.Errorf("listing logical clusters: %w", err)
	}
	t.pruneBytes(all)
	limits := t.limits(all)
	if len(limits) == 0 {
		t.resetObjects()
		return nil
	}
	before := t.deltas()
	sums := map[logicalcluster.Name]int64{}
	err = t.cfg.Keys.CountAll(ctx, func(cluster logicalcluster.Name, keys int64) {
		if _, bounded := limits[cluster]; bounded {
			sums[cluster] += keys
		}
	})
	if err != nil {
		return err
	}
	t.replace(limits, sums, before)
	return nil
}

// limits returns those logical clusters that have an object limit. One that is copied to this shard is counted when it is complete,
// before its first object is created.
func (t *Tracker) limits(all []*corev1alpha1.LogicalCluster) map[logicalcluster.Name]clusterLimit {
	limits := map[logicalcluster.Name]clusterLimit{}
	for _, cluster := range all {
		if movestate.Of(cluster.Annotations) == movestate.Arriving {
			continue
		}
		if limit := t.Limit(cluster); limit > 0 {
			_, own := cluster.Annotations[corev1alpha1.MaxTotalObjectsAnnotationKey]
			limits[logicalcluster.Of(cluster)] = clusterLimit{limit, own}
		}
	}
	return limits
}

func (t *Tracker) deltas() map[logicalcluster.Name]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	deltas := make(map[logicalcluster.Name]int64, len(t.counts))
	for cluster, entry := range t.counts {
		deltas[cluster] = entry.delta
	}
	return deltas
}

// replace stores the result of a scan. Changes during the scan are added: they may be counted twice until the next
// scan, but are never missed.
func (t *Tracker) replace(limits map[logicalcluster.Name]clusterLimit, sums, before map[logicalcluster.Name]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ready := make(chan struct{})
	close(ready)
	kept := map[logicalcluster.Name]*clusterCount{}
	for cluster, sum := range sums {
		entry := &clusterCount{scanned: sum, ready: ready}
		if known := t.counts[cluster]; known != nil {
			entry.delta = max(known.delta-before[cluster], 0)
		}
		if limits[cluster].own || entry.delta > 0 || (sum+entry.delta)*100 >= limits[cluster].limit*trackedPercent {
			kept[cluster] = entry
		}
	}
	t.counts = kept
	t.report(limits)
}

// reset removes all entries and metrics.
func (t *Tracker) reset() {
	t.pruneBytes(nil)
	t.resetObjects()
}

// resetObjects removes all entries and metrics of objects.
func (t *Tracker) resetObjects() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = map[logicalcluster.Name]*clusterCount{}
	t.report(nil)
}

// report sets the metrics of the logical clusters close to their limit and removes others. Callers must hold mu.
func (t *Tracker) report(limits map[logicalcluster.Name]clusterLimit) {
	shard := map[string]string{"shard": t.cfg.Shard}
	objectCount.DeletePartialMatch(shard)
	objectLimit.DeletePartialMatch(shard)
	for cluster, entry := range t.counts {
		current, limit := entry.scanned+entry.delta, limits[cluster].limit
		if current*100 >= limit*reportedPercent {
			objectCount.WithLabelValues(t.cfg.Shard, cluster.String()).Set(float64(current))
			objectLimit.WithLabelValues(t.cfg.Shard, cluster.String()).Set(float64(limit))
		}
	}
}
