package publisher

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// publishedResources is global, because a process runs one agent.
var publishedResources = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "sync_agent_published_resource",
	Help: "PublishedResources that the agent selects.",
})

func init() {
	metrics.Registry.MustRegister(publishedResources)
}
