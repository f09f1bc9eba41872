package objectcount

import (
	"context"
	"fmt"

	"github.com/atoll-dev/atoll/logicalcluster"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// bound is the limit of one logical cluster.
type bound struct {
	limit int64
	own   bool
}

// scan counts all logical clusters anew, in one pass, and forgets those that need not be remembered. Without any limit
// it costs a look at the watch cache.
func (c *Counts) scan(ctx context.Context) error {
	bounds, err := c.bounds(ctx)
	if err != nil {
		return err
	}
	if len(bounds) == 0 {
		c.forget()
		return nil
	}
	before := c.deltas()
	sums := map[logicalcluster.Name]int64{}
	err = c.cfg.Keys.CountAll(ctx, func(cluster logicalcluster.Name, keys int64) {
		if _, bounded := bounds[cluster]; bounded {
			sums[cluster] += keys
		}
	})
	if err != nil {
		return err
	}
	c.replace(bounds, sums, before)
	return nil
}

// bounds returns the logical clusters that have a limit.
func (c *Counts) bounds(ctx context.Context) (map[logicalcluster.Name]bound, error) {
	all, err := c.clusters.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing logical clusters: %w", err)
	}
	bounds := map[logicalcluster.Name]bound{}
	for _, cluster := range all {
		if limit := c.Limit(cluster); limit > 0 {
			_, own := cluster.Annotations[corev1alpha1.MaxTotalObjectsAnnotationKey]
			bounds[logicalcluster.Of(cluster)] = bound{limit, own}
		}
	}
	return bounds, nil
}

func (c *Counts) deltas() map[logicalcluster.Name]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	deltas := make(map[logicalcluster.Name]int64, len(c.counts))
	for cluster, entry := range c.counts {
		deltas[cluster] = entry.delta
	}
	return deltas
}

// replace takes over what a scan found. What changed while it ran stays on top: it may be counted twice, until the next
// scan, but is never missed.
func (c *Counts) replace(bounds map[logicalcluster.Name]bound, sums, before map[logicalcluster.Name]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := make(chan struct{})
	close(ready)
	kept := map[logicalcluster.Name]*count{}
	for cluster, sum := range sums {
		entry := &count{scanned: sum, ready: ready}
		if known := c.counts[cluster]; known != nil {
			entry.delta = max(known.delta-before[cluster], 0)
		}
		if bounds[cluster].own || entry.delta > 0 || (sum+entry.delta)*100 >= bounds[cluster].limit*near {
			kept[cluster] = entry
		}
	}
	c.counts = kept
	c.report(bounds)
}

// forget drops everything, metrics too.
func (c *Counts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = map[logicalcluster.Name]*count{}
	c.report(nil)
}

// report sets the metrics of the logical clusters close to their limit, and of no others. The lock is held.
func (c *Counts) report(bounds map[logicalcluster.Name]bound) {
	shard := map[string]string{"shard": c.cfg.Shard}
	objectCount.DeletePartialMatch(shard)
	objectLimit.DeletePartialMatch(shard)
	for cluster, entry := range c.counts {
		held, limit := entry.scanned+entry.delta, bounds[cluster].limit
		if held*100 >= limit*reported {
			objectCount.WithLabelValues(c.cfg.Shard, cluster.String()).Set(float64(held))
			objectLimit.WithLabelValues(c.cfg.Shard, cluster.String()).Set(float64(limit))
		}
	}
}
