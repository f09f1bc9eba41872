package storage

import (
	"time"

	"k8s.io/apiserver/pkg/storage/cacher"
)

// freshFor is how long the watch cache keeps an event at least.
const freshFor = cacher.DefaultEventFreshDuration

// How many events the watch cache has room for, whatever their age is, and at most.
const (
	leastHistory = 100
	mostHistory  = 100 * 1024
)

// history knows how many events the stock watch cache of a resource holds, and of what age, for there is no other way to
// learn it. Its rules are those of the watch cache: events are in a ring, which doubles when it is full of fresh ones, and
// is halved when it is full and all but its last quarter are old. An event is looked at when another comes, never else.
type history struct {
	// times is when the events came, a ring: the last of them is at (next-1) modulo its length.
	times []time.Time
	// next counts events, and first is the number of the oldest that is held.
	next, first int
}

func newHistory() *history { return &history{times: make([]time.Time, leastHistory)} }

// add is told of an event.
func (h *history) add(now time.Time) {
	switch {
	case h.full() && now.Sub(h.at(h.first)) < freshFor:
		h.resize(min(2*len(h.times), mostHistory))
	case h.shrinks(now):
		h.resize(max(len(h.times)/2, leastHistory))
	}
	if h.full() {
		h.first++
	}
	h.times[h.next%len(h.times)] = now
	h.next++
}

// clear is told that the watch cache begins anew. It keeps its ring.
func (h *history) clear() { h.first = h.next }

func (h *history) full() bool { return h.next-h.first == len(h.times) }

// missing returns how many events make it full.
func (h *history) missing() int { return len(h.times) - (h.next - h.first) }

// shrinks tells whether an event that comes now halves it.
func (h *history) shrinks(now time.Time) bool {
	return len(h.times) > leastHistory && h.full() && now.Sub(h.at(h.next-len(h.times)/4)) > freshFor
}

// quiet tells whether hardly any of its room would be needed if events always came as they did in a time that ends now, which
// is no longer than they are fresh.
func (h *history) quiet(now time.Time, since time.Duration) bool {
	few := max(1, int(int64(len(h.times))/8*int64(since)/int64(freshFor)))
	return h.next-h.first < few || now.Sub(h.at(h.next-few)) > since
}

func (h *history) at(number int) time.Time { return h.times[number%len(h.times)] }

func (h *history) resize(size int) {
	if size == len(h.times) {
		return
	}
	resized := make([]time.Time, size)
	h.first = max(h.first, h.next-size)
	for number := h.first; number < h.next; number++ {
		resized[number%size] = h.at(number)
	}
	h.times = resized
}
