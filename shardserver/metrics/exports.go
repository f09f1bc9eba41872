package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// exportCollector counts bindings and exports by status. The counts are maintained by the indexes.
type exportCollector struct {
	metrics.BaseStableCollector
	shard    string
	bindings *bindings.Index
	exports  *apiindex.Resolver

	phase, bindingCondition, exportCondition *metrics.Desc
}

// NewExportCollector returns the collector of bindings and exports, for Install.
func NewExportCollector(shard string, index *bindings.Index, exports *apiindex.Resolver) metrics.StableCollector {
	describe := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")
	}
	return &exportCollector{
		shard: shard, bindings: index, exports: exports,
		phase:            describe("kcp_apibinding_phase", "APIBindings of this shard, by phase.", "shard", "phase"),
		bindingCondition: describe("kcp_apibinding_condition_status", "Conditions of the APIBindings of this shard, by type and status.", "shard", "condition", "status"),
		exportCondition:  describe("kcp_apiexport_condition_status", "Conditions of the APIExports of this shard, by type and status.", "shard", "condition", "status"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (e *exportCollector) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, description := range []*metrics.Desc{e.phase, e.bindingCondition, e.exportCondition} {
		to <- description
	}
}

// CollectWithStability implements metrics.StableCollector.
func (e *exportCollector) CollectWithStability(to chan<- metrics.Metric) {
	gauge := func(description *metrics.Desc, value int, labels ...string) {
		to <- metrics.NewLazyConstMetric(description, metrics.GaugeValue, float64(value), append([]string{e.shard}, labels...)...)
	}
	phases := map[apisv1alpha2.APIBindingPhaseType]int{"": 0, apisv1alpha2.APIBindingPhaseBinding: 0, apisv1alpha2.APIBindingPhaseBound: 0}
	conditions := make([]map[corev1.ConditionStatus]int, len(bindings.Conditions))
	for i := range conditions {
		conditions[i] = map[corev1.ConditionStatus]int{corev1.ConditionTrue: 0, corev1.ConditionFalse: 0, corev1.ConditionUnknown: 0}
	}
	for state, count := range e.bindings.CountStates() {
		phases[state.Phase()] += count
		for i := range conditions {
			if status := state.Condition(i); status != "" {
				conditions[i][status] += count
			}
		}
	}
	for phase, count := range phases {
		gauge(e.phase, count, string(phase))
	}
	for i, statuses := range conditions {
		for status, count := range statuses {
			gauge(e.bindingCondition, count, string(bindings.Conditions[i]), string(status))
		}
	}
	for condition, count := range e.exports.CountConditions() {
		gauge(e.exportCondition, count, string(condition.Type), string(condition.Status))
	}
}
