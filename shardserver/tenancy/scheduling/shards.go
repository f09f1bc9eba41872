package scheduling

import (
	"sync"
	"time"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// HeartbeatTracker knows what other shards last reported of themselves (package health).
type HeartbeatTracker interface {
	// Last returns the last report of a shard, or nil if none is known, and how long ago it came.
	LastReport(shard string) (*shardingv1alpha1.ShardReport, time.Duration)
	// Alive returns the last report of a shard, or nil if it has been silent for too long.
	LiveReport(shard string) *shardingv1alpha1.ShardReport
}

// initialReportTimeout is for how long nobody gives up a shard of which nothing was ever heard.
const initialReportTimeout = time.Minute

// Scheduler chooses among shards, and remembers what it sent to each that is in no report yet. It is safe for concurrent use,
// and bounded by the number of shards.
type Scheduler struct {
	own        string
	heartbeats HeartbeatTracker
	pick       func(n int) int
	since      time.Time

	mu      sync.Mutex
	entries map[string]*entry
}

// sent is what was sent to a shard since a report.
type entry struct {
	// load is what the report says; placed was added to it.
	load, pending int64
	beat          int64
	// open tells whether the shard took logical clusters by its last report, refused whether somebody was told since then
	// that it does not, for whatever reason.
	open, refused bool
}

// New returns what chooses for the shard called own.
func New(own string, heartbeats HeartbeatTracker) *Scheduler {
	return &Scheduler{own: own, heartbeats: heartbeats, pick: random, since: time.Now(), entries: map[string]*entry{}}
}

// Heard takes note of a report, and tells whether a shard that took no logical clusters, for all that was known, does now:
// it was full or ill, or nothing was heard of it.
func (s *Scheduler) ObserveReport(report *shardingv1alpha1.ShardReport) (opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.entry(report.Name)
	closed := !to.open || to.refused
	to.open = hasRoom(report.Spec)
	if to.open {
		to.refused = false
	}
	return to.open && closed
}

// Gone forgets a shard.
func (s *Scheduler) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, name)
}

// Lost tells whether a shard has been silent for so long that nobody should wait for it.
func (s *Scheduler) IsLost(name string) bool {
	if name == s.own || s.heartbeats.LiveReport(name) != nil {
		return false
	}
	last, _ := s.heartbeats.LastReport(name)
	return last != nil || time.Since(s.since) > initialReportTimeout
}

func hasRoom(report shardingv1alpha1.ShardReportSpec) bool {
	capacity := logicalClusters(report.Capacity)
	return UnschedulableReason(report) == "" && (capacity == 0 || logicalClusters(report.Load) < capacity)
}

func (s *Scheduler) entry(name string) *entry {
	if s.entries[name] == nil {
		s.entries[name] = &entry{}
	}
	return s.entries[name]
}

// placed returns how many logical clusters were sent to a shard that this report of it does not count yet. This shard's
// own reports have no beat: those that count something else are new.
func (s *Scheduler) pending(name string, report shardingv1alpha1.ShardReportSpec) int64 {
	to := s.entry(name)
	if load := logicalClusters(report.Load); to.beat != report.Beat || to.load != load {
		to.beat, to.load, to.pending = report.Beat, load, 0
	}
	return to.pending
}
