// Package writetimeout ends responses and connections whose clients do not read. Without it, a client that keeps the
// flow-control window of a stream shut blocks the handler for as long as its connection is open, because the timeout of
// the generic API server waits for the blocked write.
//
// It does not limit the duration of a response that the client reads.
package writetimeout

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Timeouts are how long a write may wait for the client.
type Timeouts struct {
	// Response is the timeout of ordinary responses, and of connections.
	Response time.Duration
	// Watch is the timeout of responses of unlimited duration. It does not run while the server has nothing to write.
	Watch time.Duration
}

// Default returns the timeouts of servers. Clients of watches may pause for longer, because a watch has no seat once it
// has sent its initial events.
func Default() Timeouts { return Timeouts{Response: 30 * time.Second, Watch: 2 * time.Minute} }

// progressBytes is how many bytes a client has to read within a timeout.
const progressBytes = 256 << 10

// WithTimeouts ends the response of next when the client does not read. It must be the outermost handler.
func (t Timeouts) WithTimeouts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, ok := w.(deadlineSetter); !ok { // the client is in the same process
			next.ServeHTTP(w, req)
			return
		}
		writer := &writer{ResponseWriter: w, timeout: t.Response}
		if IsWatch(req) {
			writer.timeout = t.Watch
		}
		defer writer.close(req)
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(writer), req)
	})
}

// IsWatch reports whether the query of a request is for a response of unlimited duration.
func IsWatch(req *http.Request) bool {
	query := req.URL.Query()
	switch query.Get("watch") {
	case "", "0", "false":
		return query.Get("follow") == "true"
	}
	return true
}

// deadlineSetter is implemented by the writers of net/http.
type deadlineSetter interface {
	SetWriteDeadline(deadline time.Time) error
}

// writer starts a timer for each write that may wait for the client.
type writer struct {
	http.ResponseWriter
	timeout time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	writing bool
	// buffered is true if the server may write remaining data after the handler has returned.
	buffered bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *writer) Write(data []byte) (written int, err error) {
	for {
		part := data[written:min(len(data), written+progressBytes)]
		w.start()
		n, err := w.ResponseWriter.Write(part)
		w.stop(true)
		written += n
		if err != nil || written >= len(data) {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	flusher, ok := w.ResponseWriter.(http.Flusher)
	if !ok {
		return
	}
	w.start()
	flusher.Flush()
	w.stop(false)
}

func (w *writer) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout, w.abort)
	} else {
		w.timer.Reset(w.timeout)
	}
}

func (w *writer) stop(buffered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.writing, w.buffered = false, buffered
}

// abort makes the current write fail: a deadline in the past resets an HTTP/2 stream, and breaks an HTTP/1.1 connection.
func (w *writer) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing {
		w.setDeadline(time.Unix(1, 0))
	}
}

// close limits what the server writes after the handler. For HTTP/1.1 the timeout of the connection does, because a
// deadline would remain for the next request.
func (w *writer) close(req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.buffered && req.ProtoMajor > 1 {
		w.setDeadline(time.Now().Add(w.timeout))
	}
}

func (w *writer) setDeadline(deadline time.Time) {
	// The writers of net/http implement it and return no error.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
}
