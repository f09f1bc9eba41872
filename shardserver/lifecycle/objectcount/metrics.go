package objectcount

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// These are the only metrics with a logical cluster label. They exist only for the few close to their limit.
var (
	objectCount = newGauge("kcp_logicalcluster_object_count", "Number of objects of a logical cluster with at least 90 percent of its limit.")
	objectLimit = newGauge("kcp_logicalcluster_object_limit", "Object limit of a logical cluster with at least 90 percent of it.")
	byteCounts  = newGauge("atoll_logicalcluster_bytes", "Size of the objects of a logical cluster with at least 90 percent of its byte limit, as last counted.")
	byteLimits  = newGauge("atoll_logicalcluster_byte_limit", "Byte limit of a logical cluster with at least 90 percent of it.")
)

func newGauge(name, help string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"shard", "cluster"})
}

func init() {
	legacyregistry.MustRegister(objectCount, objectLimit, byteCounts, byteLimits)
}
