// Package objectcount tracks the approximate number of objects of logical clusters with an object limit: the keys that
// the last scan of etcd found, plus the creations and minus the deletions through this process since. It also tracks their
// size: the bytes that the last count found, plus what this process has written since. Admission checks the limits against
// them.
//
// Entries exist only for logical clusters that have an object limit of their own, are close to their limit, or have created
// objects since the last scan; and for the size, for those that have written since the start and still exist.
package objectcount

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// trackedPercent is the percentage of the limit at which a logical cluster keeps its entry, reportedPercent that at
// which it gets metrics.
const (
	trackedPercent  = 50
	reportedPercent = 90
)

// KeyCounter counts keys and bytes in etcd.
type KeyCounter interface {
	// CountAll calls count for every logical cluster and storage.
	CountAll(ctx context.Context, count func(cluster logicalcluster.Name, keys int64)) error
	// Count returns the number of keys of one logical cluster.
	Count(ctx context.Context, cluster logicalcluster.Name) (int64, error)
	// CountBytes returns the size of all values of one logical cluster, which it reads.
	CountBytes(ctx context.Context, cluster logicalcluster.Name) (int64, error)
}

// Config configures a Tracker.
type Config struct {
	Registry *storage.Registry
	Keys     KeyCounter
	// Shard is the name of the shard, for metrics.
	Shard string
	// DefaultLimit applies to logical clusters without a limit of their own; 0 is no limit.
	DefaultLimit int64
	// DefaultByteLimit returns the byte limit of logical clusters without one of their own; 0 is no limit.
	DefaultByteLimit func() int64
	// Interval is the time between two scans.
	Interval time.Duration
}

// Tracker tracks object counts.
type Tracker struct {
	cfg      Config
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
	// due are the logical clusters whose bytes are to be counted.
	due chan logicalcluster.Name
	// written are the bytes that this process has written.
	written atomic.Int64

	mu     sync.Mutex
	counts map[logicalcluster.Name]*clusterCount
	bytes  map[logicalcluster.Name]*byteCount
}

// clusterCount is the count of one logical cluster.
type clusterCount struct {
	// scanned is the number of keys in etcd, delta the change since.
	scanned, delta int64
	// ready is closed when scanned or err is set.
	ready chan struct{}
	err   error
}

// New returns an empty Tracker.
func New(cfg Config) *Tracker {
	return &Tracker{
		cfg:      cfg,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, corev1alpha1.Resource("logicalclusters")),
		due:      make(chan logicalcluster.Name, maxDue),
		counts:   map[logicalcluster.Name]*clusterCount{},
		bytes:    map[logicalcluster.Name]*byteCount{},
	}
}

// Limit returns the object limit of a logical cluster; 0 is no limit.
func (t *Tracker) Limit(cluster *corev1alpha1.LogicalCluster) int64 {
	return limitOf(cluster, corev1alpha1.MaxTotalObjectsAnnotationKey, func() int64 { return t.cfg.DefaultLimit })
}

// Add counts one object of a logical cluster, unless the limit is reached. It returns the count before. If there is no
// entry, it counts the keys of this logical cluster in etcd first.
func (t *Tracker) Add(ctx context.Context, cluster logicalcluster.Name, limit int64, dryRun bool) (current int64, fits bool, err error) {
	for {
		entry, first := t.getOrCreate(cluster)
		if first {
			t.count(ctx, cluster, entry)
		}
		select {
		case <-entry.ready:
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
		if entry.err == nil {
			if current, fits, counted := t.add(cluster, entry, limit, dryRun); counted {
				return current, fits, nil
			}
			continue
		}
		if first {
			return 0, false, entry.err
		}
		// The count of another request failed, perhaps because that request ended: retry.
	}
}

// Remove counts one object less, if the logical cluster has an entry.
func (t *Tracker) Remove(cluster logicalcluster.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.counts[cluster]; entry != nil {
		entry.delta--
	}
}

// Len returns the number of logical clusters with an entry.
func (t *Tracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.counts)
}

func (t *Tracker) getOrCreate(cluster logicalcluster.Name) (entry *clusterCount, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.counts[cluster]; entry != nil {
		return entry, false
	}
	entry = &clusterCount{ready: make(chan struct{})}
	t.counts[cluster] = entry
	return entry, true
}

// count counts the keys of one logical cluster in etcd. On failure it removes the entry.
func (t *Tracker) count(ctx context.Context, cluster logicalcluster.Name, entry *clusterCount) {
	keys, err := t.cfg.Keys.Count(ctx, cluster)
	t.mu.Lock()
	defer t.mu.Unlock()
	entry.scanned, entry.err = keys, err
	if err != nil && t.counts[cluster] == entry {
		delete(t.counts, cluster)
	}
	close(entry.ready)
}

// add counts one object more, if it fits. counted is false if a scan has replaced the entry.
func (t *Tracker) add(cluster logicalcluster.Name, entry *clusterCount, limit int64, dryRun bool) (current int64, fits, counted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[cluster] != entry {
		return 0, false, false
	}
	current = max(entry.scanned+entry.delta, 0)
	if current >= limit {
		return current, false, true
	}
	if !dryRun {
		entry.delta++
	}
	return current, true, true
}

// Run scans and counts until the context ends.
func (t *Tracker) Run(ctx context.Context) {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { t.runByteCounts(ctx) })
	ticker := time.NewTicker(t.cfg.Interval)
	defer ticker.Stop()
	for {
		if err := t.scan(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to count the objects of logical clusters, previous counts are kept")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.reset()
			return
		}
	}
}
