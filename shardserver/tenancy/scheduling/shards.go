package scheduling

import (
	"sync"
	"time"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// Beats knows what other shards last reported of themselves (package health).
type Beats interface {
	// Last returns the last report of a shard, or nil if none is known, and how long ago it came.
	Last(shard string) (*shardingv1alpha1.ShardReport, time.Duration)
	// Alive returns the last report of a shard, or nil if it has been silent for too long.
	Alive(shard string) *shardingv1alpha1.ShardReport
}

// patience is for how long nobody gives up a shard of which nothing was ever heard.
const patience = time.Minute

// Shards chooses among shards, and remembers what it sent to each that is in no report yet. It is safe for concurrent use,
// and bounded by the number of shards.
type Shards struct {
	own   string
	beats Beats
	pick  func(n int) int
	since time.Time

	mu   sync.Mutex
	sent map[string]*sent
}

// sent is what was sent to a shard since a report.
type sent struct {
	// load is what the report says; placed was added to it.
	load, placed int64
	beat         int64
	// open tells whether the shard took logical clusters by its last report, refused whether somebody was told since then
	// that it does not, for whatever reason.
	open, refused bool
}

// New returns what chooses for the shard called own.
func New(own string, beats Beats) *Shards {
	return &Shards{own: own, beats: beats, pick: random, since: time.Now(), sent: map[string]*sent{}}
}

// Heard takes note of a report, and tells whether a shard that took no logical clusters, for all that was known, does now:
// it was full or ill, or nothing was heard of it.
func (s *Shards) Heard(report *shardingv1alpha1.ShardReport) (opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.to(report.Name)
	closed := !to.open || to.refused
	to.open = room(report.Spec)
	if to.open {
		to.refused = false
	}
	return to.open && closed
}

// Gone forgets a shard.
func (s *Shards) Gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sent, name)
}

// Lost tells whether a shard has been silent for so long that nobody should wait for it.
func (s *Shards) Lost(name string) bool {
	if name == s.own || s.beats.Alive(name) != nil {
		return false
	}
	last, _ := s.beats.Last(name)
	return last != nil || time.Since(s.since) > patience
}

func room(report shardingv1alpha1.ShardReportSpec) bool {
	capacity := quantity(report.Capacity)
	return Closed(report) == "" && (capacity == 0 || quantity(report.Load) < capacity)
}

func (s *Shards) to(name string) *sent {
	if s.sent[name] == nil {
		s.sent[name] = &sent{}
	}
	return s.sent[name]
}

// placed returns how many logical clusters were sent to a shard that this report of it does not count yet. This shard's
// own reports have no beat: those that count something else are new.
func (s *Shards) placed(name string, report shardingv1alpha1.ShardReportSpec) int64 {
	to := s.to(name)
	if load := quantity(report.Load); to.beat != report.Beat || to.load != load {
		to.beat, to.load, to.placed = report.Beat, load, 0
	}
	return to.placed
}
