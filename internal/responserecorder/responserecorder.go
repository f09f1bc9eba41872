// Package responserecorder provides an http.ResponseWriter that buffers a response, for requests that a server sends to
// its own handlers.
package responserecorder

import (
	"bytes"
	"net/http"
)

// Recorder is a buffered response.
type Recorder struct {
	Status int
	Body   bytes.Buffer
	header http.Header
}

// New returns an empty recorder.
func New() *Recorder { return &Recorder{Status: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) { r.Status = status }

// Write implements http.ResponseWriter.
func (r *Recorder) Write(data []byte) (int, error) { return r.Body.Write(data) }

// WriteTo writes the response to a client.
func (r *Recorder) WriteTo(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body.Bytes()) // a write fails if the client has disconnected
}
