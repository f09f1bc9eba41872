package objectcount

import (
	"context"
	"math"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// recountFraction is the fraction of the byte limit that may be written before the bytes are counted again: what
	// replicas of the shard have written since is known only from a count.
	recountFraction = 8
	// marginFraction is the fraction of the byte limit that may be added, by requests whose growth is measured, while a
	// count decides.
	marginFraction = 8
	// A logical cluster is counted for at most one pauseFactor-th of the time, and not again within minPause. Where requests
	// may be refused for no reason until the next count, it is counted for up to half of the time: urgentFactor.
	pauseFactor  = 10
	urgentFactor = 1
	minPause     = time.Second
	// maxDue bounds the logical clusters that wait for being counted. Others are counted after a later write.
	maxDue = 100
)

// The default byte limit is a fraction of etcd's quota, so that one logical cluster cannot fill it, and at most
// maxDefaultByteLimit, because the watch caches need several times the size in memory.
const (
	quotaFraction       = 16
	maxDefaultByteLimit = 128 << 20
)

// ByteLimitFor returns the default byte limit for a quota of etcd, 0 if it is not known.
func ByteLimitFor(quota int64) int64 {
	if quota <= 0 {
		return maxDefaultByteLimit
	}
	return min(quota/quotaFraction, maxDefaultByteLimit)
}

// ByteState says whether a logical cluster may store more bytes.
type ByteState int

const (
	// BytesFit means that the limit is not reached, or that there is none.
	BytesFit ByteState = iota
	// BytesFull means that the last count reached the limit.
	BytesFull
	// BytesUncertain means that the limit is reached if everything that was written since the last count was added, or that
	// there was no count yet. Until the next one, which decides, Grant says what may be added.
	BytesUncertain
)

// byteCount is the size of one logical cluster.
type byteCount struct {
	// counted is the size of all values in etcd at the last count, 0 before the first. written is the size of what this
	// process has written since: the whole object for an update, while deletions do not count, so that counted+written is
	// too high, until the next count, but for what other replicas write.
	counted, written int64
	// granted is what requests have added since the last count whose growth was measured because the state was uncertain.
	granted int64
	// limit is the last limit, checkAt the value of written from which the limit is read and checked.
	limit, checkAt int64
	// due is true while a count is due, nextCount the time before which there is none, nextUrgent that before which there is
	// none although it decides about requests.
	due                   bool
	nextCount, nextUrgent time.Time
	// counting is when the last count that succeeded began, shrunk when something was last deleted or became smaller.
	counting, shrunk time.Time
}

// state returns whether a logical cluster may store more, and whether it should be counted.
func (b *byteCount) state(limit int64) (state ByteState, count bool) {
	recount := b.written >= limit/recountFraction
	switch {
	case b.counted >= limit:
		return BytesFull, true
	case b.counted+b.written >= limit, recount && b.counting.IsZero(): // what it had before this process started is not known
		return BytesUncertain, true
	}
	return BytesFit, recount
}

// isUrgent reports whether the next count may decide otherwise than the last one about requests that are refused now. What
// is deleted is noted before etcd deletes it, which takes less than minPause, so that a count may miss it.
func (b *byteCount) isUrgent(state ByteState) bool {
	return state == BytesUncertain || state == BytesFull && b.shrunk.Add(minPause).After(b.counting)
}

// grant adds the measured growth of a request in an uncertain state, if that fits.
//
// When the state becomes uncertain, the logical cluster has at most its limit, as everything that was written since the
// last count is added in full. From then on it has at most what is granted more, which a margin bounds.
func (b *byteCount) grant(limit, growth int64) bool {
	if b.granted+growth > limit/marginFraction || b.counted+b.granted+growth > limit {
		return false
	}
	b.granted += growth
	return true
}

// nextCheck returns the value of written at which the state changes.
func (b *byteCount) nextCheck(limit int64) int64 {
	return min(limit/recountFraction, limit-b.counted)
}

// AddWritten implements storage.Meter.
func (t *Tracker) AddWritten(cluster logicalcluster.Name, bytes int) {
	t.written.Add(int64(bytes))
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.bytes[cluster]
	if entry == nil {
		entry = &byteCount{}
		t.bytes[cluster] = entry
	}
	entry.written += int64(bytes)
}

// Written returns the bytes that this process has written to etcd.
func (t *Tracker) Written() int64 { return t.written.Load() }

// ByteLimit returns the byte limit of a logical cluster; 0 is no limit.
func (t *Tracker) ByteLimit(cluster *corev1alpha1.LogicalCluster) int64 {
	return limitOf(cluster, corev1alpha1.MaxTotalBytesAnnotationKey, t.cfg.DefaultByteLimit)
}

// limitOf returns the value of the annotation, or the default, which applies neither to root nor to system logical clusters.
func limitOf(cluster *corev1alpha1.LogicalCluster, annotation string, byDefault func() int64) int64 {
	if own, err := strconv.ParseInt(cluster.Annotations[annotation], 10, 64); err == nil {
		return max(own, 0)
	}
	if name := logicalcluster.Of(cluster); name == logicalcluster.Root || name.IsSystem() {
		return 0
	}
	return byDefault()
}

// ByteUsage is the size of a logical cluster.
type ByteUsage struct {
	State ByteState
	// Counted is the size at the last count.
	Counted, Limit int64
}

// CheckBytes returns whether the context's logical cluster may store more. It never waits: if the bytes should be counted,
// Run does so.
func (t *Tracker) CheckBytes(ctx context.Context, cluster logicalcluster.Name) (ByteUsage, error) {
	if !t.isCheckDue(cluster) {
		return ByteUsage{}, nil
	}
	own, err := t.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return ByteUsage{}, nil
	}
	if err != nil {
		return ByteUsage{}, err
	}
	return t.checkBytes(cluster, t.ByteLimit(own), time.Now()), nil
}

// Grant reports whether the context's logical cluster, whose state was uncertain, may become larger by a number of bytes
// before the next count, and counts them as added.
func (t *Tracker) Grant(cluster logicalcluster.Name, growth int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.bytes[cluster]
	return entry != nil && entry.grant(entry.limit, growth)
}

// NoteShrinking notes that a deletion, or an update that makes an object smaller, is accepted: a logical cluster that has
// reached its limit is then counted soon.
func (t *Tracker) NoteShrinking(cluster logicalcluster.Name, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.bytes[cluster]; entry != nil {
		entry.shrunk = now
	}
}

// isCheckDue reports whether the limit of a logical cluster must be read.
func (t *Tracker) isCheckDue(cluster logicalcluster.Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.bytes[cluster]
	return entry != nil && entry.written >= entry.checkAt
}

func (t *Tracker) checkBytes(cluster logicalcluster.Name, limit int64, now time.Time) ByteUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.bytes[cluster]
	if entry == nil {
		return ByteUsage{}
	}
	entry.limit = limit
	if limit == 0 {
		entry.checkAt = math.MaxInt64
		return ByteUsage{}
	}
	state, count := entry.state(limit)
	if count {
		t.requestCount(cluster, entry, entry.isUrgent(state), now)
	} else {
		entry.checkAt = entry.nextCheck(limit)
	}
	return ByteUsage{state, entry.counted, limit}
}

// requestCount makes Run count a logical cluster, unless it was counted recently. Callers must hold mu.
func (t *Tracker) requestCount(cluster logicalcluster.Name, entry *byteCount, urgent bool, now time.Time) {
	next := entry.nextCount
	if urgent {
		next = entry.nextUrgent
	}
	if entry.due || now.Before(next) {
		return
	}
	select {
	case t.due <- cluster:
		entry.due = true
	default:
	}
}

// runByteCounts counts the logical clusters that are due, one at a time, until the context ends.
func (t *Tracker) runByteCounts(ctx context.Context) {
	for {
		select {
		case cluster := <-t.due:
			if err := t.countBytes(ctx, cluster); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to count the bytes of a logical cluster, the previous count is kept")
			}
		case <-ctx.Done():
			return
		}
	}
}

// countBytes counts one logical cluster. What is written during the count may count twice until the next.
func (t *Tracker) countBytes(ctx context.Context, cluster logicalcluster.Name) error {
	written, granted := t.beginCount(cluster)
	started := time.Now()
	bytes, err := t.cfg.Keys.CountBytes(ctx, cluster)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.bytes[cluster]
	if entry == nil {
		return err
	}
	entry.due = false
	took := now.Sub(started)
	entry.nextCount = now.Add(max(pauseFactor*took, minPause))
	entry.nextUrgent = now.Add(max(urgentFactor*took, minPause))
	if err != nil {
		return err
	}
	entry.counted, entry.written, entry.checkAt = bytes, max(entry.written-written, 0), 0
	entry.granted, entry.counting = max(entry.granted-granted, 0), started
	return nil
}

// beginCount returns what was written and granted before a count: the count sees it.
func (t *Tracker) beginCount(cluster logicalcluster.Name) (written, granted int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.bytes[cluster]; entry != nil {
		return entry.written, entry.granted
	}
	return 0, 0
}

// pruneBytes removes the entries of logical clusters that are gone. The limits of the others, which may have changed, are
// read again with their next write.
func (t *Tracker) pruneBytes(existing []*corev1alpha1.LogicalCluster) {
	names := make(map[logicalcluster.Name]bool, len(existing))
	for _, cluster := range existing {
		names[logicalcluster.Of(cluster)] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for cluster, entry := range t.bytes {
		if !names[cluster] {
			delete(t.bytes, cluster)
			continue
		}
		entry.checkAt = 0
	}
	t.reportBytes()
}

// reportBytes sets the metrics of the logical clusters close to their byte limit and removes others. Callers must hold mu.
func (t *Tracker) reportBytes() {
	shard := map[string]string{"shard": t.cfg.Shard}
	byteCounts.DeletePartialMatch(shard)
	byteLimits.DeletePartialMatch(shard)
	for cluster, entry := range t.bytes {
		if entry.limit > 0 && entry.counted >= entry.limit/100*reportedPercent {
			byteCounts.WithLabelValues(t.cfg.Shard, cluster.String()).Set(float64(entry.counted))
			byteLimits.WithLabelValues(t.cfg.Shard, cluster.String()).Set(float64(entry.limit))
		}
	}
}
