package scheduling

import (
	"sync"
	"time"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
)

// HeartbeatTracker tracks the last reports of other shards (package heartbeat).
type HeartbeatTracker interface {
	// LastReport returns the last report of a shard and its age, or nil if there is none.
	LastReport(shard string) (*shardingv1alpha1.ShardReport, time.Duration)
	// LiveReport returns the last report of a shard, or nil if it is too old.
	LiveReport(shard string) *shardingv1alpha1.ShardReport
}

// initialReportTimeout is the time after the start at which a shard that has never reported counts as lost.
const initialReportTimeout = time.Minute

// Scheduler selects shards, and tracks the logical clusters that it assigned to each and that are in no report yet. It
// is safe for concurrent use, and has one entry per shard.
type Scheduler struct {
	own        string
	heartbeats HeartbeatTracker
	pick       func(n int) int
	since      time.Time

	mu      sync.Mutex
	entries map[string]*entry
}

// entry tracks one shard.
type entry struct {
	// load is the load of the last report; pending is the number of logical clusters assigned since.
	load, pending int64
	beat          int64
	// changed is when a logical cluster was last assigned.
	changed time.Time
	// admitted are the logical clusters that this shard creates and that its load does not include yet.
	admitted admissions
	// schedulable reports whether the shard accepts logical clusters by its last report, refused whether a workspace was
	// refused since then.
	schedulable, refused bool
}

// maxUncounted is the time after which the load of this shard includes what was created. What was assigned, but has
// disappeared, or has taken the place of a deleted logical cluster, does not change the load.
const maxUncounted = 5 * time.Second

// admissions counts logical clusters that were admitted since the load has changed.
type admissions struct {
	load, count int64
	changed     time.Time
}

// New returns a Scheduler for the shard called own.
func New(own string, heartbeats HeartbeatTracker) *Scheduler {
	return &Scheduler{own: own, heartbeats: heartbeats, pick: random, since: time.Now(), entries: map[string]*entry{}}
}

// ObserveReport processes a report, and returns whether a shard that accepted no logical clusters before accepts them
// now.
func (s *Scheduler) ObserveReport(report *shardingv1alpha1.ShardReport) (opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.entry(report.Name)
	closed := !state.schedulable || state.refused
	state.schedulable = isSchedulable(report.Spec)
	if state.schedulable {
		state.refused = false
	}
	return state.schedulable && closed
}

// Remove removes a shard.
func (s *Scheduler) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, name)
}

// IsLost reports whether a shard has not reported for so long that workspaces should not wait for it.
func (s *Scheduler) IsLost(name string) bool {
	if name == s.own || s.heartbeats.LiveReport(name) != nil {
		return false
	}
	last, _ := s.heartbeats.LastReport(name)
	return last != nil || time.Since(s.since) > initialReportTimeout
}

// Cancel undoes a choice: the logical cluster will not be created.
func (s *Scheduler) Cancel(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.entries[name]; state != nil && state.pending > 0 {
		state.pending--
	}
}

func isSchedulable(report shardingv1alpha1.ShardReportSpec) bool {
	capacity := placementrules.Value(report.Capacity, placementrules.LogicalClusters)
	return placementrules.UnhealthyMessage(report.Conditions) == "" && (capacity == 0 || placementrules.Value(report.Load, placementrules.LogicalClusters) < capacity)
}

func (s *Scheduler) entry(name string) *entry {
	if s.entries[name] == nil {
		s.entries[name] = &entry{}
	}
	return s.entries[name]
}

// pending returns the number of logical clusters assigned to a shard that its report does not include yet. Reports of
// this shard have no beat; they are new if the load differs.
func (s *Scheduler) pending(name string, report shardingv1alpha1.ShardReportSpec) int64 {
	state := s.entry(name)
	load := placementrules.Value(report.Load, placementrules.LogicalClusters)
	if state.beat != report.Beat || state.load != load || name == s.own && time.Since(state.changed) > maxUncounted {
		state.beat, state.load, state.pending = report.Beat, load, 0
	}
	return state.pending
}
