package replica

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// undecoded counts what another version of the program has published and this one cannot read.
var undecoded = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_mirror_undecodable_objects_total",
	Help:           "Objects of other shards that could not be decoded, by resource.",
	StabilityLevel: metrics.ALPHA,
}, []string{"resource"})

// refusedObjects counts what is not kept of shards that publish too much.
var refusedObjects = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_mirror_refused_objects_total",
	Help:           "Objects of other shards that were not kept, as the shard has published more than is kept of one, by that shard.",
	StabilityLevel: metrics.ALPHA,
}, []string{"of"})

func init() {
	legacyregistry.MustRegister(undecoded, refusedObjects)
}

// collector counts when it is asked. Its series follow the number of resources.
type collector struct {
	metrics.BaseStableCollector
	mirror *Mirror
	// unwritten is for how long something has been waiting to be published.
	unwritten func() time.Duration
	// ahead is by how much the clock of this process is ahead of the cache's.
	ahead        func() time.Duration
	lag, objects *metrics.Desc
	known, clock *metrics.Desc
}

// NewCollector returns the metrics of replication in both directions.
func NewCollector(mirror *Mirror, unwritten, ahead func() time.Duration) metrics.StableCollector {
	describe := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, append([]string{"shard"}, labels...), nil, metrics.ALPHA, "")
	}
	return &collector{
		mirror: mirror, unwritten: unwritten, ahead: ahead,
		lag:     describe("atoll_replication_lag_seconds", "For how long what other shards have was not brought up to date (read), and for how long the oldest change of this shard waits to be published (write, by the replica that runs the controllers); 0 when nothing is behind.", "direction"),
		objects: describe("atoll_mirrored_objects", "Objects of other shards that are known here, by resource.", "resource"),
		clock:   describe("atoll_clock_ahead_seconds", "By how much the clock of this process is ahead of that of the cache server, to the second; negative if it is behind. Tokens, certificates and locks are judged by clocks."),
		known:   describe("atoll_mirror_known", "Whether all objects that other shards have of a resource are known (1), or some may not be (0).", "resource"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.lag
	descriptions <- c.objects
	descriptions <- c.known
	descriptions <- c.clock
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(found chan<- metrics.Metric) {
	gauge := func(of *metrics.Desc, value float64, labels ...string) {
		found <- metrics.NewLazyConstMetric(of, metrics.GaugeValue, value, append([]string{c.mirror.cfg.Shard}, labels...)...)
	}
	gauge(c.clock, c.ahead().Seconds())
	gauge(c.lag, c.mirror.Behind().Seconds(), "read")
	gauge(c.lag, c.unwritten().Seconds(), "write")
	for resource, table := range c.mirror.tables {
		count, unknown := table.size()
		gauge(c.objects, float64(count), resource.String())
		known := 1.0
		if unknown != nil {
			known = 0
		}
		gauge(c.known, known, resource.String())
	}
}

// Behind returns for how long a stream from the cache has been closed; 0 while all are open.
func (m *Mirror) Behind() time.Duration { return m.outage.longest() }

func (t *table) size() (count int, unknown error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, entries := range t.clusters {
		count += len(entries)
	}
	return count, t.unknown
}
