package informer

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// watchRestarts has no logical cluster as a label, and the series of a resource is deleted when an informer of it stops:
// the number of time series must not grow with the workspaces, nor with the custom resources that existed once.
var watchRestarts = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_informer_watch_restarts_total",
	Help:           "How often an informer's watch of a resource ended and was started again.",
	StabilityLevel: metrics.ALPHA,
}, []string{"resource"})

func init() {
	legacyregistry.MustRegister(watchRestarts)
}
