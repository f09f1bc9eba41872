package apiindex

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Time from creation to readiness of bindings and exports. No label names a logical cluster.
var (
	bindingsReady = newReadyDuration("kcp_apibinding_ready_duration_ms", "Time from the creation of an APIBinding until it was ready for the first time, in milliseconds.")
	exportsReady  = newReadyDuration("kcp_apiexport_ready_duration_ms", "Time from the creation of an APIExport until it had an identity, in milliseconds.")
)

func newReadyDuration(name, help string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: name, Help: help, StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(10, 2, 14), // 10 ms to 82 s
	}, []string{"shard"})
}

func init() {
	legacyregistry.MustRegister(bindingsReady, exportsReady)
}

// ObserveBindingReady records that a binding is ready for the first time.
func ObserveBindingReady(shard string, created metav1.Time, now time.Time) {
	observe(bindingsReady, shard, created, now)
}

// ObserveExportReady records that an export has its identity.
func ObserveExportReady(shard string, created metav1.Time, now time.Time) {
	observe(exportsReady, shard, created, now)
}

// observe records a duration. Creation timestamps are truncated to seconds, so it is up to one second too long.
func observe(histogram *metrics.HistogramVec, shard string, created metav1.Time, now time.Time) {
	histogram.WithLabelValues(shard).Observe(float64(max(0, now.Sub(created.Time)).Milliseconds()))
}
