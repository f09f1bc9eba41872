package controller

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // depth, latency and duration of each queue
)

// Outcomes of one call of Reconcile.
const (
	outcomeSuccess  = "success"
	outcomeConflict = "conflict"
	outcomeError    = "error"
	// outcomeUndecided is that of a look at what other shards have, which is not known yet.
	outcomeUndecided = "undecided"
)

// No metric has the logical cluster as a label: their number must not grow with the workspaces (wall W2).
var (
	reconciles = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "atoll_controller_reconciles_total",
		Help:           "Calls of a controller's reconcile function, by controller and outcome (success, conflict, error, undecided).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "outcome"})

	watchRestarts = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "atoll_controller_watch_restarts_total",
		Help:           "How often the controllers' watch of a resource ended and was started again.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"resource"})
)

func init() {
	legacyregistry.MustRegister(reconciles, watchRestarts)
}
