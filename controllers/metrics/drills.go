package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// drillMetrics are those of the last success of RestoreDrills.
type drillMetrics struct{ success, recovery, loss *prometheus.Desc }

func newDrillMetrics() drillMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kcp_operator_restore_drill_"+name, help+" Without one, there is no series.", []string{"namespace", "restoredrill", "rootshard"}, nil)
	}
	return drillMetrics{
		success:  desc("last_success_timestamp_seconds", "When the last drill that succeeded had ended."),
		recovery: desc("recovery_seconds", "How long the last drill that succeeded took until the restored shards served."),
		loss:     desc("data_loss_seconds", "How old the data of the backup was when the last drill that succeeded began."),
	}
}

func (d drillMetrics) describe(out chan<- *prometheus.Desc) {
	out <- d.success
	out <- d.recovery
	out <- d.loss
}

func (d drillMetrics) collect(drill *operatorv1alpha1.RestoreDrill, out chan<- prometheus.Metric) {
	status := &drill.Status
	if status.LastSuccessfulTime == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, drill.Namespace, drill.Name, drill.Spec.RootShardRef.Name)
	}
	gauge(d.success, float64(status.LastSuccessfulTime.Unix()))
	for desc, text := range map[*prometheus.Desc]string{d.recovery: status.RecoveryTime, d.loss: status.DataLoss} {
		if duration, err := time.ParseDuration(text); err == nil {
			gauge(desc, duration.Seconds())
		}
	}
}
