package filters

import (
	"net/http"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Limits of consistent reads of one user for paths that are not in the watch cache.
const (
	latestPerSecond = 20
	latestBurst     = 50
	// maxReaders bounds the number of users whose rate is known. The least recent one gets a fresh limit.
	maxReaders = 1024
)

// ReadLimiter limits the rate of consistent reads of each user. Paths are resolved before the request is authenticated,
// which may depend on the logical cluster, so that it authenticates requests that need such a read by itself.
type ReadLimiter struct {
	origin func(*http.Request) string

	mu      sync.Mutex
	readers *lru.Cache // *rate.Limiter by origin
}

// NewReadLimiter returns a limiter of the users that origin returns. The request that origin gets is not used afterwards.
func NewReadLimiter(origin func(*http.Request) string) *ReadLimiter {
	return &ReadLimiter{origin: origin, readers: lru.New(maxReaders)}
}

// For returns a function that reports whether the request may read once more.
func (l *ReadLimiter) For(req *http.Request) func() bool {
	origin := sync.OnceValue(func() string { return l.origin(req.Clone(req.Context())) })
	return func() bool { return l.reader(origin()).Allow() }
}

func (l *ReadLimiter) reader(origin string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reader, ok := l.readers.Get(origin); ok {
		return reader.(*rate.Limiter)
	}
	reader := rate.NewLimiter(latestPerSecond, latestBurst)
	l.readers.Add(origin, reader)
	return reader
}
