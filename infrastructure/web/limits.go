package web

import (
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// limiter bounds the requests that are served at a time.
type limiter struct{ requests, watches *seats }

func (l *limiter) withLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seats := l.requests
		if req.URL.Path == "/healthz" { // health checks are not limited
			next.ServeHTTP(w, req)
			return
		} else if writetimeout.IsWatch(req) {
			seats = l.watches
		}
		caller := callerOf(req)
		if !seats.take(caller) {
			writeStatus(w, apierrors.NewTooManyRequests("too many requests are being served, try again later", 1))
			return
		}
		defer seats.leave(caller)
		next.ServeHTTP(w, req)
	})
}

// caller identifies a token by its hash. Callers without a token share one value, which has no limit per token.
type caller [sha256.Size]byte

func callerOf(req *http.Request) caller {
	token, ok := BearerToken(req.Header)
	if !ok {
		return caller{}
	}
	return sha256.Sum256([]byte(token))
}

// seats counts the requests that are being served. Each token, valid or not, can have a limited number of them.
type seats struct {
	limit SeatLimit

	mu    sync.Mutex
	taken int
	by    map[caller]int // has no entries with value zero
}

func newSeats(limit SeatLimit) *seats { return &seats{limit: limit, by: map[caller]int{}} }

func (s *seats) take(c caller) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.limit.All || c != (caller{}) && s.by[c] >= s.limit.PerToken {
		return false
	}
	s.taken++
	s.by[c]++
	return true
}

func (s *seats) leave(c caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.by[c]--; s.by[c] == 0 {
		delete(s.by, c)
	}
}

// withBodyLimit bounds the size of request bodies and the time in which clients send them.
func withBodyLimit(limits Limits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength > limits.Body {
			writeStatus(w, apierrors.NewRequestEntityTooLargeError("the request body is too large"))
			return
		}
		if req.Body != nil && req.Body != http.NoBody {
			// The writers of net/http implement it and return no error.
			setDeadline := http.NewResponseController(w).SetReadDeadline
			_ = setDeadline(time.Now().Add(limits.BodyTimeout))
			req.Body = &body{http.MaxBytesReader(w, req.Body, limits.Body), func() { _ = setDeadline(time.Time{}) }}
		}
		next.ServeHTTP(w, req)
	})
}

// body clears the read deadline at the end of the body, because the deadline would also end the response.
type body struct {
	io.ReadCloser
	clear func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.clear()
	}
	return n, err
}
