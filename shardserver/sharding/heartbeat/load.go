// Package health is what shards tell about themselves and hear of others: how much a shard holds and may hold, whether it
// takes new logical clusters (Reporter), when another was last heard of (Beats), and, on the root shard, what of it
// stands in the status of the Shard objects (Controller).
//
// It decides nothing: where a workspace goes is for placement, what is routed where for the front proxy. How a report gets
// to other shards is for the package that publishes.
package heartbeat

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Counting takes etcd a moment for every million keys, so what was counted is good for a while.
const (
	clustersFor = time.Second
	objectsFor  = time.Minute
)

// Load is how much a shard holds, without its own logical clusters.
type Load struct {
	LogicalClusters, Objects int64
	// Memory is what the process cannot do without, in bytes: garbage is not part of it.
	Memory int64
}

// Keys counts keys in storage, without those of the shard's own logical clusters.
type Keys interface {
	Total(ctx context.Context, resources ...*storage.Resource) (int64, error)
}

// meter measures the load.
type meter struct {
	keys     Keys
	registry *storage.Registry

	mu                sync.Mutex
	load              Load
	clusters, objects time.Time // when they were counted
}

// measure returns the load, and what is known of it with an error.
func (m *meter) measure(ctx context.Context) (Load, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load.Memory = needed()
	if time.Since(m.clusters) >= clustersFor {
		resource, err := m.registry.Get(corev1alpha1.Resource("logicalclusters"))
		if err != nil {
			return m.load, err
		}
		if m.load.LogicalClusters, err = counted(ctx, m.keys, m.load.LogicalClusters, resource); err != nil {
			return m.load, err
		}
		m.clusters = time.Now()
	}
	if time.Since(m.objects) >= objectsFor {
		var err error
		if m.load.Objects, err = counted(ctx, m.keys, m.load.Objects, m.registry.Stored()...); err != nil {
			return m.load, err
		}
		m.objects = time.Now()
	}
	return m.load, nil
}

// counted returns what was known before with an error.
func counted(ctx context.Context, keys Keys, before int64, resources ...*storage.Resource) (int64, error) {
	total, err := keys.Total(ctx, resources...)
	if err != nil {
		return before, err
	}
	return total, nil
}

// needed returns how much memory the process would hold if there were no garbage, in bytes.
func needed() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/metadata/mcache/inuse:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"}, {Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/os-stacks:bytes"}, {Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples)
	var sum uint64
	for _, sample := range samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			sum += sample.Value.Uint64()
		}
	}
	return int64(sum)
}
