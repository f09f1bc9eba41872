package flowcontrol

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// limiter limits the seats that requests of each user occupy, in FIFO order. Users are independent of each other. A
// user without requests is not in the map.
type limiter struct {
	// seats is the number of seats of a user, maxRequests the number of requests that may occupy or await them.
	seats       int64
	maxRequests int

	mu    sync.Mutex
	users map[string]*userSeats
}

// userSeats are the seats of one user.
type userSeats struct {
	*semaphore.Weighted
	requests int // that occupy or await seats
}

func newLimiter(seats, maxRequests int) *limiter {
	return &limiter{seats: int64(seats), maxRequests: maxRequests, users: map[string]*userSeats{}}
}

// acquire waits until the user has the seats for a request, which release returns. ok is false if too many requests of
// the user wait, or if the context ends first.
func (l *limiter) acquire(ctx context.Context, user string, seats int64) (release func(), ok bool) {
	u := l.add(user)
	if u == nil {
		return nil, false
	}
	seats = min(seats, l.seats)
	if err := u.Acquire(ctx, seats); err != nil {
		l.remove(user)
		return nil, false
	}
	return func() {
		u.Release(seats)
		l.remove(user)
	}, true
}

// add counts a request of the user. It returns nil if there are too many.
func (l *limiter) add(user string) *userSeats {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[user]
	if u == nil {
		u = &userSeats{Weighted: semaphore.NewWeighted(l.seats)}
		l.users[user] = u
	}
	if u.requests >= l.maxRequests {
		return nil
	}
	u.requests++
	return u
}

func (l *limiter) remove(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[user]
	if u.requests--; u.requests == 0 {
		delete(l.users, user)
	}
}
