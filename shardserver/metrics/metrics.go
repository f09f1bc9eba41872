// Package metrics serves a shard's /metrics: the metrics of the stock libraries, and the number of logical clusters and
// workspaces by phase. No label contains the name of a logical cluster, so that the number of time series does not grow
// with workspaces. Access is authorized before the handler.
package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// scrapeTimeout bounds the counting for one scrape, which reads the watch cache only.
const scrapeTimeout = 10 * time.Second

// Install serves /metrics and /metrics/slis, with additional collectors. The handler of the generic server
// (Config.EnableMetrics) must be disabled: it serves process-wide metrics without the name of the shard, and tests run
// several shards in one process.
func Install(pathMux *mux.PathRecorderMux, registry *storage.Registry, shard string, additional ...metrics.StableCollector) {
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("discarded")) // registers the metrics of the stock handler
	kubeRegistry := metrics.NewKubeRegistry()
	kubeRegistry.CustomMustRegister(append(additional, newCollector(registry, shard))...)
	metricsHandler := metrics.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, kubeRegistry}, metrics.HandlerOpts{})
	reset := legacyregistry.HandlerWithReset()
	pathMux.Handle("/metrics", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodDelete {
			reset.ServeHTTP(w, req)
			return
		}
		metricsHandler.ServeHTTP(w, req)
	}))
	slis.SLIMetricsWithReset{}.Install(pathMux)
}

// phases are reported even if their count is zero.
var phases = []corev1alpha1.LogicalClusterPhaseType{
	corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady,
	corev1alpha1.LogicalClusterPhaseUnavailable, corev1alpha1.LogicalClusterPhaseInactive, corev1alpha1.LogicalClusterPhaseTerminating,
	corev1alpha1.LogicalClusterPhaseDeleting,
}

// collector counts at each scrape, so that it keeps no state.
type collector struct {
	metrics.BaseStableCollector
	shard                string
	clusters             phaseCounter[*corev1alpha1.LogicalCluster]
	workspaces           phaseCounter[*tenancyv1alpha1.Workspace]
	indexed              *metrics.Desc
	clusterDescription   *metrics.Desc
	workspaceDescription *metrics.Desc
}

func newCollector(registry *storage.Registry, shard string) *collector {
	describe := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")
	}
	return &collector{
		shard:                shard,
		clusters:             newPhaseCounter[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		workspaces:           newPhaseCounter[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		indexed:              describe("kcp_indexed_logicalclusters", "Logical clusters that this shard can resolve.", "shard"),
		clusterDescription:   describe("kcp_logicalcluster_count", "Logical clusters of this shard, by phase.", "shard", "phase"),
		workspaceDescription: describe("kcp_workspace_count", "Workspaces of this shard, by phase.", "shard", "phase"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, description := range []*metrics.Desc{c.indexed, c.clusterDescription, c.workspaceDescription} {
		to <- description
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(to chan<- metrics.Metric) {
	ctx, cancel := context.WithTimeout(logicalcluster.With(context.Background(), logicalcluster.Wildcard), scrapeTimeout)
	defer cancel()
	all, ok := c.clusters.collect(ctx, to, c.clusterDescription, c.shard)
	if ok {
		to <- metrics.NewLazyConstMetric(c.indexed, metrics.GaugeValue, float64(all), c.shard)
	}
	c.workspaces.collect(ctx, to, c.workspaceDescription, c.shard)
}

// phaseCounter is a resource whose objects have a phase.
type phaseCounter[T runtime.Object] struct{ reader *storage.Reader[T] }

func newPhaseCounter[T runtime.Object](registry *storage.Registry, resource schema.GroupResource) phaseCounter[T] {
	return phaseCounter[T]{storage.NewReader[T](registry, resource)}
}

// collect sends the counts by phase and returns the total, or false if the objects could not be listed.
func (c phaseCounter[T]) collect(ctx context.Context, to chan<- metrics.Metric, description *metrics.Desc, shard string) (all int, ok bool) {
	selector := &phaseSelector{Selector: labels.Everything(), count: map[string]int{}}
	if _, err := c.reader.List(ctx, "", selector); err != nil {
		klog.V(2).ErrorS(err, "Failed to count for a scrape of metrics", "resource", c.reader.Resource())
		return 0, false
	}
	for _, phase := range phases {
		selector.count[string(phase)] += 0
	}
	for phase, count := range selector.count {
		to <- metrics.NewLazyConstMetric(description, metrics.GaugeValue, float64(count), shard, phase)
		all += count
	}
	return all, true
}

// phaseSelector is a selector that counts objects by phase and selects none, so that no object is copied for the count. Every
// object that is served has its phase as a label.
type phaseSelector struct {
	labels.Selector
	count map[string]int
}

// Matches implements labels.Selector.
func (p *phaseSelector) Matches(set labels.Labels) bool {
	if phase := set.Get(corev1alpha1.PhaseLabelKey); phase != "" { // the copy of a logical cluster that moves here has none
		p.count[phase]++
	}
	return false
}

// Empty implements labels.Selector. A selector that is empty would not be evaluated.
func (p *phaseSelector) Empty() bool { return false }
