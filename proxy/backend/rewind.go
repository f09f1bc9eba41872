package backend

import (
	"io"
	"net/http"
	"sync"
)

// maxRewindable is up to which size, in bytes, the body of a request is remembered. Most objects are smaller.
const maxRewindable = 256 << 10

// rewindable is a body that can be sent a second time: it remembers what has come of it. A shard that ends says on its
// connection up to which request it has looked; the transport sends later ones again on another connection, to another
// replica, but those with a body only if that can be had again. Without this, a write that meets the end of a pod would
// fail although nobody saw it.
type rewindable struct {
	mu     sync.Mutex
	source io.Reader
	seen   []byte
	err    error
}

// newRewindable returns the body of a request as one that can be sent again, nil if it is too large for that, or may be.
func newRewindable(req *http.Request) *rewindable {
	if req.ContentLength <= 0 || req.ContentLength > maxRewindable {
		return nil
	}
	return &rewindable{source: req.Body}
}

// attempt returns the body from its beginning. Closing it closes nothing: the body ends with the request it came with.
func (r *rewindable) attempt() io.ReadCloser { return io.NopCloser(&attempt{of: r}) }

// attempt is how far one sending has come.
type attempt struct {
	of *rewindable
	at int
}

func (a *attempt) Read(p []byte) (int, error) {
	r := a.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.at == len(r.seen) {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.source.Read(p)
		r.seen = append(r.seen, p[:n]...)
		a.at += n
		return n, r.err
	}
	n := copy(p, r.seen[a.at:])
	a.at += n
	return n, nil
}
