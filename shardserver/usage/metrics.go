package usage

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var uncountedRequests = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "atoll_usage_uncounted_requests_total", StabilityLevel: metrics.ALPHA,
	Help: "Requests that are missing in the usage of logical clusters, because too many were in use at once.",
}, []string{"shard"})

func init() { legacyregistry.MustRegister(uncountedRequests) }

// collector are the metrics of a Recorder. Their number does not grow with the number of logical clusters.
type collector struct {
	metrics.BaseStableCollector
	recorder        *Recorder
	requests, bytes *metrics.Desc
}

// Collector returns the metrics of the shard: the logical clusters with most requests and bytes.
func (r *Recorder) Collector() metrics.StableCollector {
	labels := []string{"shard", "cluster"}
	return &collector{
		recorder: r,
		requests: metrics.NewDesc("atoll_usage_top_requests", "Requests of the ten logical clusters with most requests, in the last interval of this replica.", labels, nil, metrics.ALPHA, ""),
		bytes:    metrics.NewDesc("atoll_usage_top_bytes", "Bytes of bodies of the ten logical clusters with most bytes, in the last interval of this replica.", labels, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(to chan<- *metrics.Desc) {
	to <- c.requests
	to <- c.bytes
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(to chan<- metrics.Metric) {
	c.recorder.topMu.Lock()
	found := c.recorder.top
	c.recorder.topMu.Unlock()
	shard := c.recorder.cfg.Shard
	for _, a := range found.byRequests {
		to <- metrics.NewLazyConstMetric(c.requests, metrics.GaugeValue, float64(a.counts.Requests()), shard, a.cluster.String())
	}
	for _, a := range found.byBytes {
		to <- metrics.NewLazyConstMetric(c.bytes, metrics.GaugeValue, float64(a.counts.Bytes()), shard, a.cluster.String())
	}
}
