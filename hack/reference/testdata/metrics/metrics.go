// Package metrics describes metrics in all ways that servers do.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

const namespace = "test"

var (
	_ = prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_constant", Help: "By " + "constants."})
	_ = metrics.NewCounterVec(&metrics.CounterOpts{Namespace: namespace, Subsystem: "part", Name: "total", Help: "By parts."}, nil)
	_ = newHistogram("test_seconds", "By a function.")
)

func newHistogram(name, help string) *metrics.Histogram {
	return metrics.NewHistogram(&metrics.HistogramOpts{Name: name, Help: help})
}

// Collect sends what is described here.
func Collect(out chan<- prometheus.Metric) {
	describe := func(name string) *prometheus.Desc {
		return prometheus.NewDesc("test_"+name+"_count", "By a function in a variable.", nil, nil)
	}
	for _, desc := range []*prometheus.Desc{describe("first"), describe("second")} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1)
	}
}
