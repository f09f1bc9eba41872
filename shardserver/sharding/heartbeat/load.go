// Package heartbeat contains the health reports of shards: Reporter creates the report of this shard with its load, its
// capacity and its conditions; Tracker tracks the reports of the other shards; and on the root shard, Controller copies
// reports to the status of Shard objects.
//
// Scheduling, routing and the publication of reports do not belong here.
package heartbeat

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Counting many keys is expensive for etcd, so counts are cached.
const (
	clustersMaxAge = time.Second
	objectsMaxAge  = time.Minute
)

// Load is the load of a shard, without its system logical clusters.
type Load struct {
	LogicalClusters, Objects int64
	// Workspaces are the logical clusters, with those of the system.
	Workspaces int64
	// Memory is the memory of the process in bytes, without garbage.
	Memory int64
	// Space is what etcd has left, for all logical clusters.
	Space etcdkeys.Space
}

// Keys counts keys in storage, without those of the shard's own logical clusters.
type KeyCounter interface {
	Total(ctx context.Context, resources ...*storage.Resource) (int64, error)
	// TotalWithSystem includes them.
	TotalWithSystem(ctx context.Context, resources ...*storage.Resource) (int64, error)
}

// meter measures the load.
type meter struct {
	keys     KeyCounter
	registry *storage.Registry
	space    func() etcdkeys.Space
	// hidden is ReporterConfig.Hidden.
	hidden func() int

	mu                sync.Mutex
	load              Load
	clusters, objects time.Time // when they were counted
}

// measure returns the load. With an error, it returns the previous values of what could not be measured.
func (m *meter) measure(ctx context.Context) (Load, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load.Memory, m.load.Space = liveMemory(), m.space()
	if time.Since(m.clusters) >= clustersMaxAge {
		resource, err := m.registry.Get(corev1alpha1.Resource("logicalclusters"))
		if err != nil {
			return m.load, err
		}
		if m.load.LogicalClusters, err = countOr(ctx, m.keys.Total, m.load.LogicalClusters, resource); err != nil {
			return m.load, err
		}
		if m.load.Workspaces, err = countOr(ctx, m.keys.TotalWithSystem, m.load.Workspaces, resource); err != nil {
			return m.load, err
		}
		if m.hidden != nil {
			hidden := int64(m.hidden())
			m.load.LogicalClusters -= hidden
			m.load.Workspaces -= hidden
		}
		m.clusters = time.Now()
	}
	if time.Since(m.objects) >= objectsMaxAge {
		var err error
		if m.load.Objects, err = countOr(ctx, m.keys.Total, m.load.Objects, m.registry.AllStorages()...); err != nil {
			return m.load, err
		}
		m.objects = time.Now()
	}
	return m.load, nil
}

// countOr returns previous with an error.
func countOr(ctx context.Context, count func(context.Context, ...*storage.Resource) (int64, error), previous int64, resources ...*storage.Resource) (int64, error) {
	total, err := count(ctx, resources...)
	if err != nil {
		return previous, err
	}
	return total, nil
}

// liveMemory returns the memory of the process without garbage, in bytes.
func liveMemory() int64 {
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
