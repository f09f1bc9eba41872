package objectcount

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// These are the only metrics with a logical cluster label. They exist only for the few close to their limit.
var (
	objectCount = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kcp_logicalcluster_object_count",
		Help:           "Number of objects of a logical cluster with at least 90 percent of its limit.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"shard", "cluster"})

	objectLimit = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kcp_logicalcluster_object_limit",
		Help:           "Object limit of a logical cluster with at least 90 percent of it.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"shard", "cluster"})
)

func init() {
	legacyregistry.MustRegister(objectCount, objectLimit)
}
