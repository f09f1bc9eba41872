package fence

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atoll-dev/atoll/internal/movestate"
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

// states are the states of the logical clusters that are not Open or have moved, and the writes in flight. They hold nothing for a
// logical cluster that is open, has never moved and is not written to. They are bounded by the logical clusters of the shard that
// move or have moved, and by the requests in flight.
type states struct {
	seed    maphash.Seed
	stripes [stripeCount]stripe
	// hidden and moved count the logical clusters that are hidden and that have an epoch.
	hidden, moved atomic.Int64
	// known is closed when the states of all logical clusters have been set once.
	known chan struct{}
	once  sync.Once
	// ended is called when no write to a logical cluster that is not Open is in flight any more, changed when a logical cluster has been
	// hidden or shown.
	ended, changed func()

	mu          sync.Mutex
	subscribers map[chan storage.HiddenChange]struct{}
	// advanced is closed when an epoch changes.
	advanced chan struct{}
}

type stripe struct {
	mu     sync.Mutex
	writes map[logicalcluster.Name]int
	moving map[logicalcluster.Name]moving
}

// moving is a logical cluster that is not Open or has moved, as of a revision of its LogicalCluster.
type moving struct {
	state    movestate.State
	epoch    uint64
	revision int64
	// outdated is whether the annotation for that is set.
	outdated bool
	// gone is when the LogicalCluster was deleted; zero if it exists.
	gone time.Time
}

// isUnmoved reports whether the logical cluster needs no entry.
func (m moving) isUnmoved() bool { return m.state == movestate.Open && m.epoch == 0 }

func always(moving) bool { return true }

func newStates(ended, changed func()) *states {
	s := &states{seed: maphash.MakeSeed(), known: make(chan struct{}), ended: ended, changed: changed, subscribers: map[chan storage.HiddenChange]struct{}{}, advanced: make(chan struct{})}
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
	if stripe.moving[cluster].state != movestate.Open {
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
	awaited := stripe.moving[cluster].state != movestate.Open
	stripe.mu.Unlock()
	if awaited {
		s.ended()
	}
}

// set sets the state of a logical cluster.
func (s *states) set(cluster logicalcluster.Name, state moving) {
	s.change(cluster, state, false, always)
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

// change replaces a state that matches, and notifies the subscribers if it hides or shows the logical cluster.
func (s *states) change(cluster logicalcluster.Name, after moving, gone bool, matches func(moving) bool) {
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	before := stripe.moving[cluster]
	if !matches(before) {
		stripe.mu.Unlock()
		return
	}
	if after.isUnmoved() {
		delete(stripe.moving, cluster)
	} else {
		stripe.moving[cluster] = after
	}
	// Readers that no longer check for hidden logical clusters check epochs instead.
	if before.epoch == 0 && after.epoch != 0 {
		s.moved.Add(1)
	}
	if before.state.IsHidden() != after.state.IsHidden() {
		if after.state.IsHidden() {
			s.hidden.Add(1)
		} else {
			s.hidden.Add(-1)
		}
	}
	if before.epoch != 0 && after.epoch == 0 {
		s.moved.Add(-1)
	}
	stripe.mu.Unlock()
	if before.epoch != after.epoch {
		s.advance()
	}
	if before.state.IsHidden() != after.state.IsHidden() {
		s.changed()
		s.publish(storage.HiddenChange{Cluster: cluster, Gone: gone})
	}
	if before.state != movestate.Open || after.state != movestate.Open {
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
		s.set(cluster, state)
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

// paused returns the logical clusters whose writes are paused, which arrive or have moved away, without any write in flight, and the
// revisions of these states.
func (s *states) paused() map[logicalcluster.Name]int64 {
	paused := map[logicalcluster.Name]int64{}
	for i := range s.stripes {
		stripe := &s.stripes[i]
		stripe.mu.Lock()
		for cluster, m := range stripe.moving {
			if m.state != movestate.Open && m.gone.IsZero() && stripe.writes[cluster] == 0 {
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
func (s *states) arrives(cluster logicalcluster.Name) bool {
	return s.stateOf(cluster) == movestate.Arriving
}

// hiddenClusters returns the number of logical clusters that exist here and are hidden.
func (s *states) hiddenClusters() int {
	if s.hidden.Load() == 0 {
		return 0
	}
	return len(s.all(func(m moving) bool { return m.state.IsHidden() && m.gone.IsZero() }))
}

// stateOf returns the state of a logical cluster that may be hidden.
func (s *states) stateOf(cluster logicalcluster.Name) movestate.State {
	if s.hidden.Load() == 0 {
		return movestate.Open
	}
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	return stripe.moving[cluster].state
}

// epoch returns the epoch of the content that the shard has of a logical cluster.
func (s *states) epoch(cluster logicalcluster.Name) uint64 {
	if s.moved.Load() == 0 {
		return 0
	}
	stripe := s.stripe(cluster)
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	return stripe.moving[cluster].epoch
}

// awaitEpoch returns when an epoch of a logical cluster, or a later one, is known, or the context's error.
func (s *states) awaitEpoch(ctx context.Context, cluster logicalcluster.Name, epoch uint64) error {
	for {
		s.mu.Lock()
		advanced := s.advanced
		s.mu.Unlock()
		if s.epoch(cluster) >= epoch {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance wakes those who wait for an epoch.
func (s *states) advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.advanced)
	s.advanced = make(chan struct{})
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

// publish notifies all subscribers of a change, and ends those that are too slow.
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
