package storage

import "time"

// ring follows how many events the watch cache holds, by the rules of k8s.io/apiserver/pkg/storage/cacher: a full ring
// doubles while its oldest event is within the window, and halves when its newest quarter is out of it.
type ring struct {
	window     time.Duration
	slots      []slot
	start, end int
}

// slot is an event: when it came, and whether it is a filler.
type slot struct {
	at     int64 // ns
	filler bool
}

const (
	smallestRing = 100
	largestRing  = 100 * 1024
	// worthTrimming is from which capacity on old events are worth an effort.
	worthTrimming = 4 * smallestRing
	// halvings bring the largest ring down to the smallest.
	halvings = 12
)

func newRing(window time.Duration) ring {
	return ring{window: window, slots: make([]slot, smallestRing)}
}

func (r *ring) capacity() int { return len(r.slots) }

func (r *ring) full() bool { return r.end == r.start+r.capacity() }

// clear empties the ring, which keeps its capacity.
func (r *ring) clear() { r.start = r.end }

// add takes in an event.
func (r *ring) add(now time.Time, filler bool) {
	if r.full() {
		switch {
		case r.within(r.start, now, r.window):
			r.resize(min(2*r.capacity(), largestRing))
		case !r.newestQuarterWithin(now):
			r.resize(max(r.capacity()/2, smallestRing))
		}
	}
	if r.full() {
		r.start++
	}
	r.slots[r.end%r.capacity()] = slot{now.UnixNano(), filler}
	r.end++
}

func (r *ring) within(index int, now time.Time, age time.Duration) bool {
	return now.UnixNano()-r.slots[index%r.capacity()].at < age.Nanoseconds()
}

func (r *ring) newestQuarterWithin(now time.Time) bool {
	return r.within(r.end-r.capacity()/4, now, r.window)
}

func (r *ring) resize(capacity int) {
	if capacity == r.capacity() {
		return
	}
	resized := make([]slot, capacity)
	if capacity < r.capacity() {
		r.start = r.end - capacity
	}
	for i := r.start; i < r.end; i++ {
		resized[i%capacity] = r.slots[i%r.capacity()]
	}
	r.slots = resized
}

// missing returns how many fillers it takes to be rid of events older than the given age: none while new ones come in
// numbers that keep the ring in use anyway.
func (r *ring) missing(now time.Time, age time.Duration) int {
	if r.capacity() < worthTrimming {
		return 0
	}
	recent, old := 0, 0
	for i := r.start; i < r.end; i++ {
		switch {
		case r.slots[i%r.capacity()].filler:
		case r.within(i, now, age):
			recent++
		default:
			old++
		}
	}
	switch {
	case recent > r.capacity()/4:
		return 0
	case old > r.capacity()/8:
		return r.capacity() - recent
	case r.full() && !r.newestQuarterWithin(now):
		return halvings
	}
	return 0
}
