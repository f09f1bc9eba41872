package etcdkeys

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	quotaBytes = newGauge("atoll_etcd_quota_bytes", "Size of the database at which the etcd of this shard refuses writes. Absent if etcd does not report it.")
	inUseBytes = newGauge("atoll_etcd_in_use_bytes", "Size of the database of the etcd of this shard without free pages, of the member that has least space left.")
	sizeBytes  = newGauge("atoll_etcd_size_bytes", "Size of the database of the etcd of this shard with free pages, of the member that has least space left.")
	noSpace    = newGauge("atoll_etcd_no_space", "Whether the etcd of this shard refuses all writes (1), by its alarm NOSPACE.")
)

func newGauge(name, help string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"shard"})
}

func init() {
	legacyregistry.MustRegister(quotaBytes, inUseBytes, sizeBytes, noSpace)
}

// report sets the metrics, or removes them.
func (m *SpaceMonitor) report(space *Space) {
	set := func(gauge *metrics.GaugeVec, value float64, known bool) {
		if known {
			gauge.WithLabelValues(m.shard).Set(value)
		} else {
			gauge.DeleteLabelValues(m.shard)
		}
	}
	known := space != nil
	if !known {
		space = &Space{}
	}
	set(quotaBytes, float64(space.Quota), known && space.Quota > 0)
	set(inUseBytes, float64(space.InUse), known)
	set(sizeBytes, float64(space.Size), known)
	alarm := 0.0
	if space.NoSpace {
		alarm = 1
	}
	set(noSpace, alarm, known)
}
