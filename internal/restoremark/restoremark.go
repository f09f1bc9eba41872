// Package restoremark has the mark of a shard whose keys were restored from a backup. While it is there, what lives outside of the restored
// etcd may know more than it does, and what the shard does not find is no deletion. A restore writes the mark before etcd starts, and only a
// person removes it.
package restoremark

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

const (
	requestTimeout = 20 * time.Second
	// RetryInterval is how often the mark is read while it is there, and how often controllers repeat what it held.
	RetryInterval = 10 * time.Second
)

// confirmedSuffix is at the end of the value of a mark whose shard knows what has moved since the backup. A restore writes another value.
const confirmedSuffix = " confirmed"

// Mark is the mark of a shard.
type Mark struct {
	held atomic.Bool
	// confirmed is what a replica had recorded at the time of Read.
	confirmed bool
}

// Read reads the mark of a prefix.
func Read(ctx context.Context, etcd *clientv3.Client, prefix string) (*Mark, error) {
	m := &Mark{}
	mark, err := read(ctx, etcd, prefix)
	m.held.Store(mark != nil)
	m.confirmed = mark != nil && strings.HasSuffix(string(mark.Value), confirmedSuffix)
	return m, err
}

// IsConfirmed reports whether the shard knew which of its logical clusters had moved since the backup when the mark was read.
func (m *Mark) IsConfirmed() bool { return m != nil && m.confirmed }

// RecordConfirmation records in the mark, if there still is one, that the shard knows which of its logical clusters have moved since the backup, so
// that later starts do not have to find out again.
func RecordConfirmation(ctx context.Context, etcd *clientv3.Client, prefix string) error {
	mark, err := read(ctx, etcd, prefix)
	if err != nil || mark == nil || strings.HasSuffix(string(mark.Value), confirmedSuffix) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := reservedkeys.Restored(prefix)
	// Unless it was removed meanwhile, or another replica was faster.
	_, err = etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", mark.ModRevision)).Then(clientv3.OpPut(key, string(mark.Value)+confirmedSuffix)).Commit()
	if err != nil {
		return fmt.Errorf("recording that the shard knows what has moved: %w", err)
	}
	return nil
}

// Held reports whether the shard was restored and not released, so that nothing may be deleted because it is absent.
func (m *Mark) Held() bool { return m != nil && m.held.Load() }

// Follow returns when the mark is gone, or the context has ended. Nothing writes a mark into an etcd that runs.
func (m *Mark) Follow(ctx context.Context, etcd *clientv3.Client, prefix string, interval time.Duration) {
	if !m.Held() {
		return
	}
	klog.FromContext(ctx).Info("The keys in etcd were restored from a backup: nothing is deleted because it is absent until they are released", "key", reservedkeys.Restored(prefix))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for m.Held() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// While etcd does not answer, the shard stays held.
		if mark, err := read(ctx, etcd, prefix); err == nil && mark == nil {
			m.held.Store(false)
			klog.FromContext(ctx).Info("The restored keys in etcd were released", "key", reservedkeys.Restored(prefix))
		}
	}
}

// read returns the mark of a prefix, nil for none.
func read(ctx context.Context, etcd *clientv3.Client, prefix string) (*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := etcd.Get(ctx, reservedkeys.Restored(prefix))
	if err != nil {
		return nil, fmt.Errorf("reading whether the keys below %s were restored: %w", prefix, err)
	}
	if len(found.Kvs) == 0 {
		return nil, nil
	}
	return found.Kvs[0], nil
}
