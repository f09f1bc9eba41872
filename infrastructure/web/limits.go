package web

import (
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// limiter bounds the requests that are served at a time.
type limiter struct{ requests, watches chan struct{} }

func (l *limiter) withLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seats := l.requests
		if req.URL.Path == "/healthz" { // answers in any case
			next.ServeHTTP(w, req)
			return
		} else if writetimeout.IsWatch(req) {
			seats = l.watches
		}
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
			next.ServeHTTP(w, req)
		default:
			writeStatus(w, apierrors.NewTooManyRequests("too many requests are being served, try again later", 1))
		}
	})
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

// body lifts the deadline when it has been read, because the deadline would also end the response.
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
