package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// flushTimeout bounds a flush and a sweep, lastFlushTimeout the one of the shutdown.
	flushTimeout     = 30 * time.Second
	lastFlushTimeout = 3 * time.Second
	// minInterval is the time between two flushes at least, whatever asks for them.
	minInterval = time.Second
	// sweepEvery is how many intervals there are between two sweeps that succeed.
	sweepEvery = 10
	// maxForgotten bounds the deleted logical clusters whose records are to be deleted. The sweep deletes those of others.
	maxForgotten = 10000
	// topLength is how many logical clusters the metrics of the shard name for each measure.
	topLength = 10
)

// Config configures a Recorder.
type Config struct {
	// Connect returns a client of etcd, which the Recorder does not close. Prefix is the prefix of the shard.
	Connect func() (*clientv3.Client, error)
	Prefix  string
	// Shard is the name of the shard, for metrics.
	Shard string
	// Interval is the time between two flushes.
	Interval time.Duration
	// Exists reports whether the context's logical cluster exists on this shard, from memory.
	Exists func(context.Context) bool
	// StoredKey returns the key that a logical cluster has in etcd as long as it exists.
	StoredKey func(logicalcluster.Name) (string, error)
	// IsGone reports whether a logical cluster has been deleted. It may ask etcd.
	IsGone func(context.Context, logicalcluster.Name) (bool, error)
	Keys   KeyCounter
}

// Recorder counts requests, and adds the counts to records in etcd.
type Recorder struct {
	*Counter
	cfg     Config
	records records
	sizes   sizes
	// process and flushes name the flushes of this process.
	process string
	flushes atomic.Int64
	// flushing has an element while counts are taken that are not in a record yet.
	flushing chan struct{}

	topMu sync.Mutex
	top   top

	// forgotten are logical clusters that were deleted. forget receives a value when there is one.
	forgottenMu sync.Mutex
	forgotten   map[logicalcluster.Name]struct{}
	forget      chan struct{}
}

// NewRecorder returns a Recorder. It connects to etcd on first use.
func NewRecorder(cfg Config) *Recorder {
	return &Recorder{
		Counter: NewCounter(cfg.Shard, cfg.Exists), cfg: cfg, process: uuid.NewString(),
		records: records{connect: cfg.Connect, prefix: cfg.Prefix, stored: cfg.StoredKey}, sizes: newSizes(cfg.Keys),
		flushing: make(chan struct{}, 1), forgotten: map[logicalcluster.Name]struct{}{}, forget: make(chan struct{}, 1),
	}
}

// Run flushes until the context ends. Close flushes what follows.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.Interval)
	defer ticker.Stop()
	var soon <-chan time.Time // of the next flush, because there is no place left
	// The first sweep finds the records of what was deleted just before a process was killed.
	swept := r.sweep(ctx)
	for intervals := 1; ; {
		isInterval := false
		select {
		case <-ctx.Done():
			return
		case <-r.forget:
			r.deleteForgotten(ctx)
			continue
		case <-r.full:
			if soon == nil {
				soon = time.After(minInterval)
			}
			continue
		case <-soon:
		case <-ticker.C:
			isInterval = true
		}
		soon = nil
		if err := r.flushUntil(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to record usage, it is tried again with the next flush")
		}
		if !isInterval {
			continue
		}
		if intervals++; !swept || intervals%sweepEvery == 0 {
			swept = r.sweep(ctx)
		}
	}
}

// sweep deletes the records of what is gone, and reports whether it could decide about all. Otherwise it is due again.
func (r *Recorder) sweep(ctx context.Context) bool {
	sweeping, cancel := context.WithTimeout(ctx, flushTimeout) // flushes wait meanwhile
	defer cancel()
	err := r.records.sweep(sweeping, time.Now(), r.cfg.IsGone)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to delete the usage of logical clusters that are gone")
	}
	return err == nil
}

// flushUntil flushes. A flush that has begun does not end with the context, because its answer would be lost, but soon afterwards.
func (r *Recorder) flushUntil(ctx context.Context) error {
	flushing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastFlushTimeout, cancel) })
	defer stop()
	return r.Flush(flushing)
}

// Forget deletes the records of a logical cluster that was deleted, or has moved away, asynchronously.
func (r *Recorder) Forget(cluster logicalcluster.Name) {
	r.forgottenMu.Lock()
	if len(r.forgotten) < maxForgotten {
		r.forgotten[cluster] = struct{}{}
	}
	r.forgottenMu.Unlock()
	select {
	case r.forget <- struct{}{}:
	default:
	}
}

// deleteForgotten deletes the records of logical clusters that were deleted. The sweep deletes those for which this fails.
func (r *Recorder) deleteForgotten(ctx context.Context) {
	r.forgottenMu.Lock()
	forgotten := slices.Collect(maps.Keys(r.forgotten))
	clear(r.forgotten)
	r.forgottenMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for batch := range slices.Chunk(forgotten, batchSize) {
		if err := r.records.delete(ctx, batch); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to delete the usage of deleted logical clusters, the next sweep does")
			return
		}
	}
}

// Close flushes for the last time. It must be called when all requests have ended.
func (r *Recorder) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastFlushTimeout)
	defer cancel()
	if err := r.Flush(ctx); err != nil {
		klog.ErrorS(err, "Failed to record the usage since the last flush, it is lost")
	}
}

// Flush adds all counts to the records of the current month.
func (r *Recorder) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	end, err := r.beginFlush(ctx)
	if err != nil {
		return err
	}
	defer end()
	now := time.Now()
	taken := r.take(now)
	r.setTop(taken)
	additions := make([]addition, 0, len(taken))
	for cluster, counts := range taken {
		if *counts != (Counts{}) {
			additions = append(additions, addition{cluster, counts})
		}
	}
	return r.write(ctx, additions, now)
}

// write adds counts to the records of the month, and keeps what it cannot add for the next flush.
func (r *Recorder) write(ctx context.Context, additions []addition, now time.Time) error {
	flush := r.nextFlush()
	var firstErr error
	for batch := range slices.Chunk(additions, batchSize) {
		left, err := r.records.add(ctx, flush, now.UTC().Format(monthFormat), batch)
		for _, a := range left {
			r.putBack(a.cluster, a.counts)
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return firstErr
}

// beginFlush waits for the flush that runs, and returns what ends the one that begins.
func (r *Recorder) beginFlush(ctx context.Context) (end func(), err error) {
	select {
	case r.flushing <- struct{}{}:
		return func() { <-r.flushing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another flush of usage: %w", ctx.Err())
	}
}

func (r *Recorder) nextFlush() string { return fmt.Sprintf("%s-%d", r.process, r.flushes.Add(1)) }

// top are the logical clusters with the largest counts of the last flush.
type top struct{ byRequests, byBytes []addition }

func (r *Recorder) setTop(taken map[logicalcluster.Name]*Counts) {
	longest := func(measure func(*Counts) int64) (list []addition) {
		for cluster, counts := range taken {
			if measure(counts) == 0 || len(list) == topLength && measure(list[topLength-1].counts) >= measure(counts) {
				continue
			}
			copied := *counts // the original is added to others if the flush fails
			list = append(list, addition{cluster, &copied})
			slices.SortFunc(list, func(a, b addition) int { return cmp.Compare(measure(b.counts), measure(a.counts)) })
			list = list[:min(len(list), topLength)]
		}
		return list
	}
	found := top{longest((*Counts).Requests), longest((*Counts).Bytes)}
	r.topMu.Lock()
	defer r.topMu.Unlock()
	r.top = found
}
