// Package objectcount knows about how many objects logical clusters hold that may not hold any number: as many keys as
// the last scan of storage found, plus what was created and minus what was deleted since, through this process. It is
// what the object limit is checked against. The check itself is in admission.
//
// Only logical clusters that have a limit of their own, come near their limit, or created something since the last scan
// are remembered.
package objectcount

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// near is the part of its limit from which on a logical cluster stays remembered, and reported the part from which on
// it has metrics; both in percent.
const (
	near     = 50
	reported = 90
)

// Keys counts keys in storage.
type Keys interface {
	// CountAll calls count for every logical cluster and storage.
	CountAll(ctx context.Context, count func(cluster logicalcluster.Name, keys int64)) error
	// Count counts one.
	Count(ctx context.Context, cluster logicalcluster.Name) (int64, error)
}

// Config is what Counts need.
type Config struct {
	Registry *storage.Registry
	Keys     Keys
	// Shard is the name of the shard, for metrics.
	Shard string
	// DefaultLimit is that of logical clusters that say nothing themselves; 0 is none.
	DefaultLimit int64
	// Interval is the time between two scans.
	Interval time.Duration
}

// Counts are the numbers of objects.
type Counts struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]

	mu     sync.Mutex
	counts map[logicalcluster.Name]*count
}

// count is what is known of one logical cluster.
type count struct {
	// scanned is what storage had, delta what changed since.
	scanned, delta int64
	// ready is closed when scanned is known; err says why it is not.
	ready chan struct{}
	err   error
}

// New returns counts that know nothing yet.
func New(cfg Config) *Counts {
	return &Counts{
		cfg:      cfg,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		counts:   map[logicalcluster.Name]*count{},
	}
}

// Limit returns how many objects a logical cluster may hold; 0 is any number.
func (c *Counts) Limit(cluster *corev1alpha1.LogicalCluster) int64 {
	if own, err := strconv.ParseInt(cluster.Annotations[corev1alpha1.MaxTotalObjectsAnnotationKey], 10, 64); err == nil {
		return max(own, 0)
	}
	if name := logicalcluster.Of(cluster); name == logicalcluster.Root || name.IsSystem() {
		return 0
	}
	return c.cfg.DefaultLimit
}

// Add counts one object of a logical cluster, unless the limit is reached. It returns the count before. The first call
// since a scan asks storage for this one cluster.
func (c *Counts) Add(ctx context.Context, cluster logicalcluster.Name, limit int64, dryRun bool) (held int64, fits bool, err error) {
	for {
		entry, first := c.entry(cluster)
		if first {
			c.count(ctx, cluster, entry)
		}
		select {
		case <-entry.ready:
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
		if entry.err == nil {
			if held, fits, counted := c.add(cluster, entry, limit, dryRun); counted {
				return held, fits, nil
			}
			continue
		}
		if first {
			return 0, false, entry.err
		}
		// Another request's count failed, perhaps because that request ended. Count ourselves.
	}
}

// Remove counts one object less, if the logical cluster is remembered.
func (c *Counts) Remove(cluster logicalcluster.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.counts[cluster]; entry != nil {
		entry.delta--
	}
}

// Len returns how many logical clusters are remembered.
func (c *Counts) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counts)
}

func (c *Counts) entry(cluster logicalcluster.Name) (entry *count, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.counts[cluster]; entry != nil {
		return entry, false
	}
	entry = &count{ready: make(chan struct{})}
	c.counts[cluster] = entry
	return entry, true
}

// count asks storage for one logical cluster. An entry that could not be counted is forgotten.
func (c *Counts) count(ctx context.Context, cluster logicalcluster.Name, entry *count) {
	keys, err := c.cfg.Keys.Count(ctx, cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.scanned, entry.err = keys, err
	if err != nil && c.counts[cluster] == entry {
		delete(c.counts, cluster)
	}
	close(entry.ready)
}

// add counts one object more, if it fits, unless a scan has put another count in the place of this one.
func (c *Counts) add(cluster logicalcluster.Name, entry *count, limit int64, dryRun bool) (held int64, fits, counted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[cluster] != entry {
		return 0, false, false
	}
	held = max(entry.scanned+entry.delta, 0)
	if held >= limit {
		return held, false, true
	}
	if !dryRun {
		entry.delta++
	}
	return held, true, true
}

// Run scans until the context ends.
func (c *Counts) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		if err := c.scan(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Counting the objects of logical clusters failed, the counts of the last time stay")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			c.forget()
			return
		}
	}
}
