package proxy

import (
	"k8s.io/component-base/metrics"

	"github.com/atoll-dev/atoll/proxy/index"
)

// indexCollector reports the size of the index by shard. It counts at each scrape, so that updates of the index do not.
type indexCollector struct {
	metrics.BaseStableCollector
	index              *index.Index
	indexed, conflicts *metrics.Desc
}

func newIndexCollector(idx *index.Index) metrics.StableCollector {
	return &indexCollector{
		index:   idx,
		indexed: metrics.NewDesc("kcp_indexed_logicalclusters", "Workspaces in the index, by shard.", []string{"shard"}, nil, metrics.ALPHA, ""),
		conflicts: metrics.NewDesc("atoll_front_proxy_contested_logicalclusters",
			"Logical clusters that a shard reports although another shard reported them first and is used, by the former.", []string{"shard"}, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *indexCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.indexed
	ch <- c.conflicts
}

// CollectWithStability implements metrics.StableCollector.
func (c *indexCollector) CollectWithStability(ch chan<- metrics.Metric) {
	snapshot := c.index.Load()
	for shard, n := range snapshot.Counts() {
		ch <- metrics.NewLazyConstMetric(c.indexed, metrics.GaugeValue, float64(n), shard)
	}
	for shard, n := range snapshot.Conflicts() {
		ch <- metrics.NewLazyConstMetric(c.conflicts, metrics.GaugeValue, float64(n), shard)
	}
}

// sourcesCollector reports which sources of the index are connected.
type sourcesCollector struct {
	metrics.BaseStableCollector
	source indexSource
	desc   *metrics.Desc
}

func newSourcesCollector(source indexSource) metrics.StableCollector {
	return &sourcesCollector{source: source, desc: metrics.NewDesc("atoll_front_proxy_index_current",
		"1 while a source of the index is synced and its watches are open, 0 while the index keeps the last known state of it.",
		[]string{"source"}, nil, metrics.ALPHA, "")}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *sourcesCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.desc }

// CollectWithStability implements metrics.StableCollector.
func (c *sourcesCollector) CollectWithStability(ch chan<- metrics.Metric) {
	for source, connected := range c.source.Sources() {
		value := 0.0
		if connected {
			value = 1
		}
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, value, source)
	}
}
