// Package inflight limits how many requests of one user a proxy forwards at once, so that no user occupies all of its
// memory and connections. It neither authenticates users nor queues requests.
package inflight

import "sync"

// Limits are those of one user; 0 is unlimited.
type Limits struct {
	Requests int
	// Watches are the requests that are open for any time.
	Watches int
}

// Limiter counts the requests of users. A user without requests is not in the map.
type Limiter struct {
	limits Limits

	mu    sync.Mutex
	users map[string]Limits
}

// NewLimiter returns a limiter without requests.
func NewLimiter(limits Limits) *Limiter {
	return &Limiter{limits: limits, users: map[string]Limits{}}
}

// Acquire counts a request until release is called. ok is false if the user has too many of its kind.
func (l *Limiter) Acquire(user string, isWatch bool) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.users[user]
	count, limit := used.kind(isWatch), *l.limits.kind(isWatch)
	if limit > 0 && *count >= limit {
		return nil, false
	}
	*count++
	l.users[user] = used
	return func() { l.release(user, isWatch) }, true
}

func (l *Limiter) release(user string, isWatch bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.users[user]
	*used.kind(isWatch)--
	if used == (Limits{}) {
		delete(l.users, user)
		return
	}
	l.users[user] = used
}

func (l *Limits) kind(isWatch bool) *int {
	if isWatch {
		return &l.Watches
	}
	return &l.Requests
}

// Users returns the number of users with requests.
func (l *Limiter) Users() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users)
}
