package backend

import (
	"io"
	"net/http"
	"sync"
)

// maxReplayable is the largest request body in bytes that is buffered for a second attempt. Most objects are smaller.
const maxReplayable = 256 << 10

// replayableBody is a request body that can be sent a second time: it buffers what has been read of it. A shard that
// shuts down reports on its HTTP/2 connection which requests it has not processed. The transport repeats these on
// another connection, but those with a body only if it can be read from the start again. So a write survives the
// restart of a shard's replica that did not process it.
type replayableBody struct {
	mu     sync.Mutex
	source io.Reader
	buffer []byte
	err    error
}

// newReplayableBody returns the body of a request, nil if it is too large or its size is unknown.
func newReplayableBody(req *http.Request) *replayableBody {
	if req.ContentLength <= 0 || req.ContentLength > maxReplayable {
		return nil
	}
	return &replayableBody{source: req.Body}
}

// reader returns the body from its start. Closing it does not close the source, which ends with the client's request.
func (b *replayableBody) reader() io.ReadCloser { return io.NopCloser(&replayReader{body: b}) }

// replayReader reads the body for one attempt.
type replayReader struct {
	body   *replayableBody
	offset int
}

func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.offset < len(b.buffer) {
		n := copy(p, b.buffer[r.offset:])
		r.offset += n
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	var n int
	n, b.err = b.source.Read(p)
	b.buffer = append(b.buffer, p[:n]...)
	r.offset += n
	return n, b.err
}
