package fence

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	stripeCount = 64
	// goneDelay is how long a deleted logical cluster of which this shard served nothing stays hidden. Watches of other
	// resources deliver the deletion of its objects later than that of the LogicalCluster.
	goneDelay     = time.Minute
	sweepInterval = time.Second
	// subscriberBuffer is the number of changes that a subscriber may be behind.
	subscriberBuffer = 16
)

// states are the states of the logical clusters that are not Open, and the writes in flight. They hold nothing for a
// logical cluster that is open and not written to, and are bounded by the moves and the requests of the moment.
type states struct {
	seed    maphash.Seed
	stripes [stripeCount]stripe
	hidden  atomic.Int64
	// known is closed when the states of all logical clusters have been set once.
	known chan struct{}
	once  sync.Once
	// ended is called when no write to a logical cluster that is not Open is in flight any more.
	ended func()

	mu          sync.Mutex
	subscribers map[chan storage.HiddenChange]struct{}
}

type stripe struct {
	mu     sync.Mutex
	writes map[logicalcluster.Name]int
	moving map[logicalcluster.Name]moving
}

// moving is a logical cluster that is not Open, as of a revision of its LogicalCluster.
type moving struct {
	state    State
	revision int64
	// gone is when the LogicalCluster was deleted; zero if it exists.
	gone time.Time
}

func always(moving) bool { return true }

func newStates(ended func()) *states {
	s := &states{seed: maphash.MakeSeed(), known: make(chan struct{}), ended: ended, subscribers: map[chan storage.HiddenChange]struct{}{}}
	for i := range s.stripes {
		s.stripes[i] = stripe{writes: map[logicalcluster.Name]int{}, moving: map[logicalcluster.Name]moving{}}
	}
	return s
}

func (s *states) stripe(cluster logicalcluster.Name) *stripe {
	return &s.stripes[maphash.String(s.seed, cluster.String())%stripeCount]
}

// enter counts a write, unless the logical cluster is not Open.
func (s *states) enter(cluster logicalcluster.Name) (ok bool) {
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	if _, refused := stripe.moving[cluster]; refused {
		return false
	}
	stripe.writes[cluster]++
	return true
}

// leave ends a write that enter counted.
func (s *states) leave(cluster logicalcluster.Name) {
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	if stripe.writes[cluster]--; stripe.writes[cluster] > 0 {
		stripe.mu.Unlock()
		return
	}
	delete(stripe.writes, cluster)
	_, awaited := stripe.moving[cluster]
	stripe.mu.Unlock()
	if awaited {
		s.ended()
	}
}

// set sets the state of a logical cluster.
func (s *states) set(cluster logicalcluster.Name, state State, revision int64) {
	s.change(cluster, moving{state: state, revision: revision}, false, always)
}

// remove removes a logical cluster that does not exist any more. One that was hidden stays so for goneDelay.
func (s *states) remove(cluster logicalcluster.Name, now time.Time) {
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	before, known := stripe.moving[cluster]
	if known && before.state.IsHidden() && before.gone.IsZero() {
		before.gone = now
		stripe.moving[cluster] = before
	}
	stripe.mu.Unlock()
	if known && !before.state.IsHidden() {
		s.change(cluster, moving{}, true, always)
	}
}

// change replaces a state that matches, and tells the subscribers if the logical cluster is hidden or shown by that.
func (s *states) change(cluster logicalcluster.Name, after moving, gone bool, matches func(moving) bool) {
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	before := stripe.moving[cluster]
	if !matches(before) {
		stripe.mu.Unlock()
		return
	}
	if after.state == Open {
		delete(stripe.moving, cluster)
	} else {
		stripe.moving[cluster] = after
	}
	if before.state.IsHidden() != after.state.IsHidden() {
		if after.state.IsHidden() {
			s.hidden.Add(1)
		} else {
			s.hidden.Add(-1)
		}
	}
	stripe.mu.Unlock()
	if before.state.IsHidden() != after.state.IsHidden() {
		s.publish(storage.HiddenChange{Cluster: cluster, Gone: gone})
	}
	if before.state != Open || after.state != Open {
		s.ended()
	}
}

// replace sets the states of all logical clusters that exist; those that are missing do not.
func (s *states) replace(existing map[logicalcluster.Name]moving, now time.Time) {
	for cluster := range s.all(always) {
		if _, exists := existing[cluster]; !exists {
			s.remove(cluster, now)
		}
	}
	for cluster, state := range existing {
		s.set(cluster, state.state, state.revision)
	}
	s.once.Do(func() { close(s.known) })
}

// sweep shows the logical clusters that have been gone for long.
func (s *states) sweep(now time.Time) {
	isOver := func(m moving) bool { return !m.gone.IsZero() && now.Sub(m.gone) >= goneDelay }
	for cluster := range s.all(isOver) {
		s.change(cluster, moving{}, true, isOver)
	}
}

// paused returns the logical clusters whose writes are paused, or which arrive, without any write in flight, and the revisions of
// these states.
func (s *states) paused() map[logicalcluster.Name]int64 {
	paused := map[logicalcluster.Name]int64{}
	for i := range s.stripes {
		stripe := &s.stripes[i]
		stripe.mu.Lock()
		for cluster, m := range stripe.moving {
			if (m.state == WritesPaused || m.state == Arriving) && m.gone.IsZero() && stripe.writes[cluster] == 0 {
				paused[cluster] = m.revision
			}
		}
		stripe.mu.Unlock()
	}
	return paused
}

func (s *states) all(matches func(moving) bool) map[logicalcluster.Name]moving {
	all := map[logicalcluster.Name]moving{}
	for i := range s.stripes {
		stripe := &s.stripes[i]
		stripe.mu.Lock()
		for cluster, m := range stripe.moving {
			if matches(m) {
				all[cluster] = m
			}
		}
		stripe.mu.Unlock()
	}
	return all
}

func (s *states) hides(cluster logicalcluster.Name) bool { return s.stateOf(cluster).IsHidden() }

// arrives reports whether a logical cluster arrives, or did until its copy was removed.
func (s *states) arrives(cluster logicalcluster.Name) bool { return s.stateOf(cluster) == Arriving }

// hiddenClusters returns the number of logical clusters that exist here and are hidden.
func (s *states) hiddenClusters() int {
	if s.hidden.Load() == 0 {
		return 0
	}
	return len(s.all(func(m moving) bool { return m.state.IsHidden() && m.gone.IsZero() }))
}

// stateOf returns the state of a logical cluster that may be hidden.
func (s *states) stateOf(cluster logicalcluster.Name) State {
	if s.hidden.Load() == 0 {
		return Open
	}
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	return stripe.moving[cluster].state
}

func (s *states) subscribe() (<-chan storage.HiddenChange, func()) {
	changes := make(chan storage.HiddenChange, subscriberBuffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[changes] = struct{}{}
	return changes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, changes)
	}
}

// publish tells all subscribers of a change, and ends those that are too slow.
func (s *states) publish(change storage.HiddenChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for changes := range s.subscribers {
		select {
		case changes <- change:
		default:
			close(changes)
			delete(s.subscribers, changes)
		}
	}
}
