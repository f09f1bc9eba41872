package flowcontrol

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// limiter limits the seats that the requests of each holder, a user or a flow, occupy, in FIFO order. Holders are
// independent of each other. A holder without requests is not in the map.
type limiter struct {
	// seats is the number of seats of a holder, maxRequests the number of requests that may occupy or await them.
	seats       int64
	maxRequests int

	mu      sync.Mutex
	holders map[string]*holder
}

type holder struct {
	*semaphore.Weighted
	requests int // that occupy or await seats
}

func newLimiter(seats, maxRequests int) *limiter {
	return &limiter{seats: int64(seats), maxRequests: maxRequests, holders: map[string]*holder{}}
}

// acquire waits until the holder has the seats for a request, which release returns. ok is false if too many requests
// of the holder wait, or if the context ends first.
func (l *limiter) acquire(ctx context.Context, name string, seats int64) (release func(), ok bool) {
	h := l.add(name)
	if h == nil {
		return nil, false
	}
	seats = min(seats, l.seats)
	if err := h.Acquire(ctx, seats); err != nil {
		l.remove(name)
		return nil, false
	}
	return func() {
		h.Release(seats)
		l.remove(name)
	}, true
}

// add counts a request of the holder. It returns nil if there are too many.
func (l *limiter) add(name string) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holders[name]
	if h == nil {
		h = &holder{Weighted: semaphore.NewWeighted(l.seats)}
		l.holders[name] = h
	}
	if h.requests >= l.maxRequests {
		return nil
	}
	h.requests++
	return h
}

func (l *limiter) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holders[name]
	if h.requests--; h.requests == 0 {
		delete(l.holders, name)
	}
}
