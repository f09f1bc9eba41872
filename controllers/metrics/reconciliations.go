package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/atoll-dev/atoll/controllers/reconcile"
)

// Results of a reconcile, and types of its errors. The messages of errors are in the log: as labels, each would be a series, because
// messages contain names and addresses.
const (
	resultSuccess = "success"
	resultError   = "error"

	errorRead      = "read_error"      // the object itself could not be read
	errorReconcile = "reconcile_error" // any other
)

// Reconciliations are the metrics about reconciles. It is a prometheus.Collector.
type Reconciliations struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

// NewReconciliations returns metrics without values.
func NewReconciliations() *Reconciliations {
	return &Reconciliations{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kcp_operator_reconciliation_duration_seconds",
			Help: "Duration of one reconcile of an object.",
			// From a reconcile that changes nothing to one that probes every shard for a rollout.
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"controller", "result"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kcp_operator_reconciliation_errors_total",
			Help: "Reconciles that failed and are retried. Waiting is no failure; conditions report it.",
		}, []string{"controller", "error_type"}),
	}
}

// Describe implements prometheus.Collector.
func (r *Reconciliations) Describe(out chan<- *prometheus.Desc) {
	r.duration.Describe(out)
	r.errors.Describe(out)
}

// Collect implements prometheus.Collector.
func (r *Reconciliations) Collect(out chan<- prometheus.Metric) {
	r.duration.Collect(out)
	r.errors.Collect(out)
}

// Instrument measures a reconciler. The counters of its errors begin at 0, so that the first error is an increase.
func (r *Reconciliations) Instrument(controller string, inner ctrlreconcile.Reconciler) ctrlreconcile.Reconciler {
	for _, errorType := range []string{errorRead, errorReconcile} {
		r.errors.WithLabelValues(controller, errorType)
	}
	return ctrlreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		start := time.Now()
		reconcileResult, err := inner.Reconcile(ctx, req)
		result := resultSuccess
		if err != nil {
			result = resultError
			r.errors.WithLabelValues(controller, errorType(err)).Inc()
		}
		r.duration.WithLabelValues(controller, result).Observe(time.Since(start).Seconds())
		return reconcileResult, err
	})
}

func errorType(err error) string {
	if errors.Is(err, reconcile.ErrRead) {
		return errorRead
	}
	return errorReconcile
}
