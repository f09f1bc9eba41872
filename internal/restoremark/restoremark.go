// Package restoremark has the mark of a shard whose keys were restored from a backup. While it is there, what lives outside of the restored
// etcd may know more than it does, and what the shard does not find is no deletion. A restore writes the mark before etcd starts, and only a
// person removes it.
package restoremark

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

const (
	requestTimeout = 20 * time.Second
	// RetryInterval is how often the mark is read while it is there, and how often controllers repeat what it held.
	RetryInterval = 10 * time.Second
)

// Mark is the mark of a shard.
type Mark struct{ held atomic.Bool }

// Read reads the mark of a prefix.
func Read(ctx context.Context, etcd *clientv3.Client, prefix string) (*Mark, error) {
	m := &Mark{}
	held, err := read(ctx, etcd, prefix)
	m.held.Store(held)
	return m, err
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
		if held, err := read(ctx, etcd, prefix); err == nil && !held {
			m.held.Store(false)
			klog.FromContext(ctx).Info("The restored keys in etcd were released", "key", reservedkeys.Restored(prefix))
		}
	}
}

func read(ctx context.Context, etcd *clientv3.Client, prefix string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := etcd.Get(ctx, reservedkeys.Restored(prefix), clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("reading whether the keys below %s were restored: %w", prefix, err)
	}
	return found.Count > 0, nil
}
