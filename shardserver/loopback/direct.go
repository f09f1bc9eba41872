package loopback

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
)

// shortcut leads writes to the handler of this process, for as long as there is one. They pass all that requests from
// outside pass; what they are spared is to be framed, encrypted, sent, and read again by the same process. Everything
// else takes the network: an answer is held as a whole, which lists and watches should not be.
type shortcut struct{ handler atomic.Pointer[http.Handler] }

// ServeDirectly gives the writes of these clients to handler, which serves the address that they were made for, until
// the context ends.
func (c *Clients) ServeDirectly(ctx context.Context, handler http.Handler) {
	c.shortcut.handler.Store(&handler)
	context.AfterFunc(ctx, func() { c.shortcut.handler.Store(nil) })
}

var writes = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// handlerFor returns what serves a request in this process, nil if it has to take the network.
func (s *shortcut) handlerFor(req *http.Request) http.Handler {
	if s == nil || !slices.Contains(writes, req.Method) {
		return nil
	}
	if handler := s.handler.Load(); handler != nil {
		return *handler
	}
	return nil
}

// serve is one round trip without a network. The handler runs on the caller's goroutine, whose stack has grown to what
// that takes by earlier ones.
func serve(handler http.Handler, req *http.Request) (_ *http.Response, err error) {
	// Nothing that the caller's context holds is for the handler, which finds out by itself who is asking for what.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	defer func() {
		if r := recover(); r != nil { // the chain of filters has told more of it
			err = fmt.Errorf("%s %s: the handler gave up: %v", req.Method, req.URL.Path, r)
		}
	}()
	if req.Body != nil {
		defer req.Body.Close()
	}
	w := &answer{header: http.Header{}}
	handler.ServeHTTP(w, arrived(ctx, req))
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.response(req), nil
}

// arrived returns a request as a server gets it from the network.
func arrived(ctx context.Context, sent *http.Request) *http.Request {
	at := &url.URL{Path: sent.URL.Path, RawPath: sent.URL.RawPath, RawQuery: sent.URL.RawQuery}
	body := sent.Body
	if body == nil {
		body = http.NoBody
	}
	req := &http.Request{
		Method: sent.Method, URL: at, RequestURI: at.RequestURI(), Host: sent.URL.Host, RemoteAddr: "127.0.0.1:0",
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: sent.Header.Clone(), Body: body, ContentLength: sent.ContentLength,
	}
	return req.WithContext(ctx)
}

// answer is what a handler has written so far.
type answer struct {
	header http.Header
	code   int // 0 as long as it is not known
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. What announces an answer only is nothing to wait for.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.Flush()
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

func (a *answer) response(req *http.Request) *http.Response {
	a.Flush()
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: req,
	}
}
