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

// FlushLeaving adds the counts of a logical cluster that this shard has handed over to its records. Each replica calls it when it serves
// nothing of the logical cluster any more, before the destination gets the records. What it cannot write in time, a later flush adds to the records
// here, of which the destination may not know.
func (r *Recorder) FlushLeaving(ctx context.Context, cluster logicalcluster.Name) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := r.flushOne(ctx, cluster); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record the usage since the last flush of a logical cluster that has moved, its destination may not get it", "cluster", cluster)
	}
}

func (r *Recorder) flushOne(ctx context.Context, cluster logicalcluster.Name) error {
	end, err := r.beginFlush(ctx)
	if err != nil {
		return err
	}
	defer end()
	now := time.Now()
	counts := r.takeOne(cluster, now)
	if counts == (Counts{}) {
		return nil
	}
	left, err := r.records.add(ctx, r.nextFlush(), now.UTC().Format(monthFormat), []addition{{cluster, &counts}})
	for _, a := range left {
		r.putBack(a.cluster, a.counts)
	}
	return err
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
// are here are from an earlier stay, and counted in those of the other shard. Months that a shard does not keep, and counts below zero, are left out, since the other shard may be
// compromised, and the move has to end.
func (r *Recorder) Replacement(ctx context.Context, cluster logicalcluster.Name, months map[string]Counts, now time.Time) ([]clientv3.Op, error) {
	found, err := r.records.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var operations []clientv3.Op
	kept := keptRange(now)
	for month, counts := range months {
		if !slices.Contains(kept, month) || counts.hasNegative() {
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

func (c *Counts) hasNegative() bool {
	return min(c.Gets, c.Lists, c.Watches, c.Writes, c.Others, c.WatchMilliseconds, c.ReceivedBytes, c.SentBytes) < 0
}
