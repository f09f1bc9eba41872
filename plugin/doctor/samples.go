package doctor

import (
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics that checks read. No others are kept.
const (
	metricCertificateExpiry = "atoll_certificate_expiration_timestamp_seconds"
	metricClockAhead        = "atoll_clock_ahead_seconds"
	metricEtcdQuota         = "atoll_etcd_quota_bytes"
	metricEtcdInUse         = "atoll_etcd_in_use_bytes"
	metricEtcdSize          = "atoll_etcd_size_bytes"
	metricEtcdNoSpace       = "atoll_etcd_no_space"
	metricReplicationLag    = "atoll_replication_lag_seconds"
	metricRefusedObjects    = "atoll_replication_refused_objects"
	metricIndexCurrent      = "atoll_front_proxy_index_current"
	metricContested         = "atoll_front_proxy_contested_logicalclusters"
	metricMigrations        = "atoll_logicalcluster_migrations_active"
	metricBindingPhase      = "kcp_apibinding_phase"
	metricBindingCondition  = "kcp_apibinding_condition_status"
)

var keptMetrics = []string{
	metricCertificateExpiry, metricClockAhead, metricEtcdQuota, metricEtcdInUse, metricEtcdSize, metricEtcdNoSpace, metricReplicationLag, metricRefusedObjects,
	metricIndexCurrent, metricContested, metricMigrations, metricBindingPhase, metricBindingCondition,
}

// Sample is a value of a metric.
type Sample struct {
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value"`
}

// Samples are metrics by name.
type Samples map[string][]Sample

// readSamples keeps what checks read of a page of metrics.
func readSamples(page io.Reader) (Samples, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	out := Samples{}
	for _, name := range keptMetrics {
		for _, metric := range families[name].GetMetric() {
			out[name] = append(out[name], sampleOf(metric))
		}
	}
	return out, nil
}

func sampleOf(metric *dto.Metric) Sample {
	sample := Sample{Labels: map[string]string{}, Value: metric.GetGauge().GetValue()}
	for _, label := range metric.GetLabel() {
		sample.Labels[label.GetName()] = label.GetValue()
	}
	return sample
}

// max returns the largest value of a metric, and whether there is one.
func (s Samples) max(name string) (float64, bool) {
	samples := s[name]
	if len(samples) == 0 {
		return 0, false
	}
	return slices.MaxFunc(samples, func(a, b Sample) int {
		switch {
		case a.Value < b.Value:
			return -1
		case a.Value > b.Value:
			return 1
		}
		return 0
	}).Value, true
}
