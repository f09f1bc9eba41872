package publisher

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// publishedResources is of the process: one agent runs in one.
var publishedResources = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "sync_agent_published_resource",
	Help: "PublishedResources that the agent selects.",
})

func init() {
	metrics.Registry.MustRegister(publishedResources)
}
