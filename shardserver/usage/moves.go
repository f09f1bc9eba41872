package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// leaveTimeout bounds how long FlushLeaving delays the end of a move, while no shard serves the logical cluster.
const leaveTimeout = 500 * time.Millisecond

// FlushLeaving adds the counts of logical clusters that this shard has handed over to its records. Each replica calls it when it serves
// nothing of them any more, before the destinations get the records. What it cannot write in time, a later flush adds to the records here, of which the
// destination may not know.
func (r *Recorder) FlushLeaving(ctx context.Context, clusters []logicalcluster.Name) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := r.flushOnly(ctx, clusters); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record the usage since the last flush of logical clusters that have moved, their destinations may not get it", "clusters", clusters)
	}
}

// flushOnly flushes the counts of these logical clusters.
func (r *Recorder) flushOnly(ctx context.Context, clusters []logicalcluster.Name) error {
	end, err := r.beginFlush(ctx)
	if err != nil {
		return err
	}
	defer end()
	now := time.Now()
	var additions []addition
	for _, cluster := range clusters {
		if counts := r.takeOne(cluster, now); counts != (Counts{}) {
			additions = append(additions, addition{cluster, &counts})
		}
	}
	return r.write(ctx, additions, now)
}

// Handed returns the counts of a logical cluster by month, for the shard to which it moves. It leaves out a record that it cannot decode: no
// shard would serve the logical cluster until somebody has repaired the record.
func (r *Recorder) Handed(ctx context.Context, cluster logicalcluster.Name) (map[string]Counts, error) {
	found, err := r.records.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	months := map[string]Counts{}
	for month, value := range found {
		record := Record{}
		if err := json.Unmarshal(value, &record); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to read the usage of a logical cluster, which does not move with it", "cluster", cluster, "month", month)
			continue
		}
		months[month] = record.Counts
	}
	return months, nil
}

// Replacement returns the operations that replace the records of a logical cluster by what the shard has counted from which it comes. Records that
// are here are from an earlier stay, and counted in those of the other shard. Months that a shard does not keep, and counts below zero or too large to be true, are left out, since the other
// shard may be compromised, and the move has to end.
func (r *Recorder) Replacement(ctx context.Context, cluster logicalcluster.Name, months map[string]Counts, now time.Time) ([]clientv3.Op, error) {
	found, err := r.records.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var operations []clientv3.Op
	kept := keptRange(now)
	for month, counts := range months {
		if !slices.Contains(kept, month) || !counts.isPlausible() {
			klog.FromContext(ctx).Info("Left out usage of a logical cluster that has moved, which another shard has not counted properly", "cluster", cluster, "month", month)
			continue
		}
		value, err := json.Marshal(&Record{Counts: counts})
		if err != nil {
			return nil, fmt.Errorf("encoding the usage of logical cluster %q: %w", cluster, err)
		}
		operations = append(operations, clientv3.OpPut(r.records.keysOf(cluster)+month, string(value)))
		delete(found, month)
	}
	for month := range found {
		operations = append(operations, clientv3.OpDelete(r.records.keysOf(cluster)+month))
	}
	return operations, nil
}

// keptRange returns the months whose records a shard keeps, and the next one: the clock of the other shard may be ahead.
func keptRange(now time.Time) (months []string) {
	year, month, _ := now.UTC().Date()
	for i := -keptMonths + 1; i <= 1; i++ {
		months = append(months, time.Date(year, month+time.Month(i), 1, 0, 0, 0, 0, time.UTC).Format(monthFormat))
	}
	return months
}

// maxCount is the largest number that all readers of metrics have exactly. Sums of a few of them do not overflow.
const maxCount = 1 << 53

func (c *Counts) isPlausible() bool {
	all := []int64{c.Gets, c.Lists, c.Watches, c.Writes, c.Others, c.WatchMilliseconds, c.ReceivedBytes, c.SentBytes}
	return slices.Min(all) >= 0 && slices.Max(all) <= maxCount
}
