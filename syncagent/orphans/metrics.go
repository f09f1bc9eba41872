package orphans

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// orphanedCopies has one series per PublishedResource.
var orphanedCopies = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sync_agent_orphaned_copies",
	Help: "Copies on the service cluster whose source is in no workspace any more, by PublishedResource.",
}, []string{"published_resource"})

func init() {
	metrics.Registry.MustRegister(orphanedCopies)
}
