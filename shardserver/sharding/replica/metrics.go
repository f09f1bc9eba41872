package replica

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// undecodable counts objects that this version of the program cannot decode.
var undecodable = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_replica_informer_undecodable_objects_total",
	Help:           "Objects of other shards that could not be decoded, by resource.",
	StabilityLevel: metrics.ALPHA,
}, []string{"resource"})

// overQuotaObjects counts objects that were dropped because of the quota of their shard.
var overQuotaObjects = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "atoll_replica_informer_dropped_objects_total",
	Help:           "Objects of other shards that were dropped because their shard has exceeded its quota, by that shard.",
	StabilityLevel: metrics.ALPHA,
}, []string{"of"})

func init() {
	legacyregistry.MustRegister(undecodable, overQuotaObjects)
}

// collector computes its metrics when they are scraped. The number of series depends on the number of resources only.
type collector struct {
	metrics.BaseStableCollector
	informer  *Informer
	publisher Publisher
	// clockAhead is the difference of the clocks of this process and the cache.
	clockAhead    func() time.Duration
	lag, objects  *metrics.Desc
	synced, clock *metrics.Desc
	refused       *metrics.Desc
}

// Publisher is what publishes the objects of this shard.
type Publisher interface {
	// Lag returns how long the oldest unpublished change has been waiting.
	Lag() time.Duration
	// Refused returns the number of objects that the cache refuses in their current state.
	Refused() int
}

// NewCollector returns the metrics of replication in both directions.
func NewCollector(informer *Informer, publisher Publisher, clockAhead func() time.Duration) metrics.StableCollector {
	describe := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, append([]string{"shard"}, labels...), nil, metrics.ALPHA, "")
	}
	return &collector{
		informer: informer, publisher: publisher, clockAhead: clockAhead,
		lag:     describe("atoll_replication_lag_seconds", "Time since objects of other shards were last up to date (read), and since the oldest unpublished change of this shard (write, in the replica that runs the controllers); 0 when up to date.", "direction"),
		objects: describe("atoll_replica_informer_objects", "Objects of other shards in the replica informer, by resource.", "resource"),
		refused: describe("atoll_replication_refused_objects", "Objects of this shard that the cache server refuses in their current state, so that other shards do not see it (in the replica that runs the controllers)."),
		clock:   describe("atoll_clock_ahead_seconds", "Difference between the clocks of this process and of the cache server in whole seconds; negative if this process is behind."),
		synced:  describe("atoll_replica_informer_synced", "Whether the replica informer of a resource is synced (1), or objects may be missing (0).", "resource"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.lag
	descriptions <- c.objects
	descriptions <- c.synced
	descriptions <- c.refused
	descriptions <- c.clock
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(found chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		found <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, append([]string{c.informer.cfg.Shard}, labels...)...)
	}
	gauge(c.clock, c.clockAhead().Seconds())
	gauge(c.lag, c.informer.Lag().Seconds(), "read")
	gauge(c.lag, c.publisher.Lag().Seconds(), "write")
	gauge(c.refused, float64(c.publisher.Refused()))
	for resource, store := range c.informer.stores {
		count, notSynced := store.size()
		gauge(c.objects, float64(count), resource.String())
		synced := 1.0
		if notSynced != nil {
			synced = 0
		}
		gauge(c.synced, synced, resource.String())
	}
}

// Lag returns for how long a reflector has been disconnected; 0 while all are connected.
func (inf *Informer) Lag() time.Duration { return inf.outage.longest() }

func (s *store) size() (count int, notSynced error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, entries := range s.clusters {
		count += len(entries)
	}
	return count, s.notSynced
}
