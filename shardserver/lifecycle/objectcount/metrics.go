package objectcount

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// These are the only metrics with a logical cluster as a label: of those that are about to be stopped, hence few.
var (
	objectCount = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kcp_logicalcluster_object_count",
		Help:           "Objects of a logical cluster that holds at least 90 percent of its limit.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"shard", "cluster"})

	objectLimit = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kcp_logicalcluster_object_limit",
		Help:           "Limit of objects of a logical cluster that holds at least 90 percent of it.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"shard", "cluster"})
)

func init() {
	legacyregistry.MustRegister(objectCount, objectLimit)
}
