package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/etcdlist"
)

const (
	// replacedRetention is how long replaced revisions count at least: etcd is compacted every five minutes to its
	// revision of five minutes before. They are counted by interval; the last interval is incomplete.
	replacedRetention = replacedIntervals * replacedInterval
	replacedIntervals = 10
	replacedInterval  = time.Minute

	// countPage is the page size of the initial count, countRetry the interval of its retries.
	countPage  = 500
	countRetry = 5 * time.Second
	// rejectionLogInterval is the minimum time without rejections before the next one is logged.
	rejectionLogInterval = 10 * time.Minute
)

// Usage is the usage of a shard, or of its users, in a cache.
type Usage struct {
	// Objects is the number of objects, Bytes their size in etcd, keys included.
	Objects, Bytes int64
	// Replaced is the size of recently replaced and deleted revisions.
	Replaced int64
}

// UsageKey identifies whose usage it is: a shard, or its users with their cached resources. They are separate so that
// users cannot exhaust the quota of their shard.
type UsageKey struct {
	Shard  string
	Cached bool
}

// String describes the key in messages.
func (u UsageKey) String() string {
	if u.Cached {
		return fmt.Sprintf("users of shard %q", u.Shard)
	}
	return fmt.Sprintf("shard %q", u.Shard)
}

// usageTracker tracks the usage by watching etcd, with the delay of a watch. It has one entry for every key with
// objects, recently replaced revisions or rejections.
type usageTracker struct {
	now func() time.Time

	mu      sync.Mutex
	records map[UsageKey]*usageRecord
}

// usageRecord is the usage of one key.
type usageRecord struct {
	objects, bytes int64
	// replaced are bytes by interval, up to last.
	replaced [replacedIntervals + 1]int64
	last     int64
	// lastRejection is the time of the last rejection.
	lastRejection time.Time
}

func newUsageTracker() *usageTracker {
	return &usageTracker{now: time.Now, records: map[UsageKey]*usageRecord{}}
}

// get returns the usage of a key; zero before the initial count.
func (u *usageTracker) get(key UsageKey) Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.records[key]
	if a == nil {
		return Usage{}
	}
	return a.result(u.currentInterval())
}

// list returns the usage of all keys.
func (u *usageTracker) list() map[UsageKey]Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	usages := make(map[UsageKey]Usage, len(u.records))
	now := u.currentInterval()
	for key, a := range u.records {
		if usages[key] = a.result(now); usages[key] != (Usage{}) {
			continue
		}
		delete(usages, key)
		if u.now().Sub(a.lastRejection) > rejectionLogInterval {
			delete(u.records, key)
		}
	}
	return usages
}

// recordRejection records a rejection, and returns whether it is the first for some time.
func (u *usageTracker) recordRejection(key UsageKey) (first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a, now := u.getOrCreate(key), u.now()
	first = now.Sub(a.lastRejection) > rejectionLogInterval
	a.lastRejection = now
	return first
}

// replace sets the counted usage. Replaced revisions are kept.
func (u *usageTracker) replace(usages map[UsageKey]Usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.records {
		a.objects, a.bytes = 0, 0
	}
	for key, total := range usages {
		a := u.getOrCreate(key)
		a.objects, a.bytes = total.Objects, total.Bytes
	}
}

// errMissedEvent is returned for an event without the previous value.
var errMissedEvent = errors.New("etcd does not have the previous value of an event")

// handleEvent applies one etcd event.
func (u *usageTracker) handleEvent(root string, event *clientv3.Event) error {
	key, ok := parseUsageKey(root, string(event.Kv.Key))
	if !ok {
		return nil
	}
	if event.PrevKv == nil && !event.IsCreate() {
		return errMissedEvent
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.getOrCreate(key)
	if event.PrevKv != nil {
		size := sizeOf(event.PrevKv)
		a.objects--
		a.bytes -= size
		a.addReplaced(u.currentInterval(), size)
	}
	if event.Type == mvccpb.PUT {
		a.objects++
		a.bytes += sizeOf(event.Kv)
	}
	return nil
}

// getOrCreate returns the record of a key. Callers must hold the lock.
func (u *usageTracker) getOrCreate(key UsageKey) *usageRecord {
	if u.records[key] == nil {
		u.records[key] = &usageRecord{}
	}
	return u.records[key]
}

func (u *usageTracker) currentInterval() int64 {
	return u.now().Unix() / int64(replacedInterval/time.Second)
}

func (u *usageRecord) result(now int64) Usage {
	u.addReplaced(now, 0)
	result := Usage{Objects: u.objects, Bytes: u.bytes}
	for _, bytes := range u.replaced {
		result.Replaced += bytes
	}
	return result
}

// addReplaced adds bytes to the current interval, and drops expired intervals.
func (u *usageRecord) addReplaced(now, bytes int64) {
	for ; u.last < now; u.last++ {
		if now-u.last > int64(len(u.replaced)) {
			u.last = now - int64(len(u.replaced))
		}
		u.replaced[(u.last+1)%int64(len(u.replaced))] = 0
	}
	u.replaced[now%int64(len(u.replaced))] += bytes
}

func sizeOf(kv *mvccpb.KeyValue) int64 { return int64(len(kv.Key) + len(kv.Value)) }

// parseUsageKey returns the usage key of an object:
// "<root><group>/<resource>/<identity>/<shard>/<cluster>/[<namespace>/]<name>".
func parseUsageKey(root, key string) (UsageKey, bool) {
	segments := strings.SplitN(strings.TrimPrefix(key, root), "/", 6)
	if len(segments) < 6 {
		return UsageKey{}, false
	}
	return UsageKey{Shard: segments[3], Cached: !IsReservedIdentity(segments[2])}, true
}

// Usage returns the usage of all shards and their users.
func (b *Backend) Usage() map[UsageKey]Usage { return b.usage.list() }

// watchUsage keeps the usage up to date until the context ends.
func (b *Backend) watchUsage(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.listAndWatchUsage(ctx); err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("Counting the usage of shards again", "err", err)
		}
		timer := time.NewTimer(countRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// listAndWatchUsage counts all objects and watches changes, until it misses an event.
func (b *Backend) listAndWatchUsage(ctx context.Context) error {
	revision, err := b.listUsage(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root := b.Prefix() + "/"
	for response := range b.client.Watch(clientv3.WithRequireLeader(ctx), root, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(revision+1)) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watching the usage of shards: %w", err)
		}
		for _, event := range response.Events {
			if err := b.usage.handleEvent(root, event); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// listUsage counts the usage of all shards, at the revision that it returns.
func (b *Backend) listUsage(ctx context.Context) (int64, error) {
	root := b.Prefix() + "/"
	usages := map[UsageKey]Usage{}
	revision, err := etcdlist.ReadValues(ctx, b.client.Client, root, 0, countPage, func(part []*mvccpb.KeyValue) error {
		for _, kv := range part {
			usageKey, ok := parseUsageKey(root, string(kv.Key))
			if !ok {
				continue
			}
			total := usages[usageKey]
			total.Objects++
			total.Bytes += sizeOf(kv)
			usages[usageKey] = total
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("counting the usage of shards: %w", err)
	}
	b.usage.replace(usages)
	return revision, nil
}
