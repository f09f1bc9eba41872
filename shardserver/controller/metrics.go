package controller

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers depth, latency and duration of queues
)

// Outcomes of one call of Reconcile.
const (
	outcomeSuccess  = "success"
	outcomeConflict = "conflict"
	outcomeError    = "error"
	// outcomeNotSynced is the outcome of a call that needs replicas of other shards which are not synced.
	outcomeNotSynced = "not_synced"
)

// reconciles has no logical cluster as a label: the number of time series must not grow with the workspaces.
var reconciles = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_controller_reconciles_total",
	Help:           "Calls of a controller's reconcile function, by controller and outcome (success, conflict, error, not_synced).",
	StabilityLevel: metrics.ALPHA,
}, []string{"controller", "outcome"})

func init() {
	legacyregistry.MustRegister(reconciles)
}
