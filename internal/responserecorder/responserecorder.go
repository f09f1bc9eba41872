// Package responserecorder provides an http.ResponseWriter that buffers a response, for requests that a server sends to
// its own handlers.
package responserecorder

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Recorder is a buffered response.
type Recorder struct {
	// Status is StatusOK until the handler sets another one.
	Status int
	Body   bytes.Buffer

	header      http.Header
	wroteHeader bool
}

// New returns an empty recorder.
func New() *Recorder { return &Recorder{Status: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. It ignores informational responses, and all calls after the first.
func (r *Recorder) WriteHeader(status int) {
	if !r.wroteHeader && status >= http.StatusOK {
		r.Status, r.wroteHeader = status, true
	}
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(data []byte) (int, error) {
	r.Flush()
	return r.Body.Write(data)
}

// Flush implements http.Flusher.
func (r *Recorder) Flush() { r.WriteHeader(http.StatusOK) }

// Response returns the response as a client receives it. The recorder must not be used afterwards.
func (r *Recorder) Response(req *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)), StatusCode: r.Status,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: r.header, Body: io.NopCloser(&r.Body), ContentLength: int64(r.Body.Len()), Request: req,
	}
}

// WriteTo writes the response to a client.
func (r *Recorder) WriteTo(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body.Bytes()) // a write fails if the client has disconnected
}
