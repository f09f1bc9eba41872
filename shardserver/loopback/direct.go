package loopback

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/atoll-dev/atoll/internal/responserecorder"
	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// directHandler passes writes to the handler of this process, while one is set. They run the same handler chain as requests
// from outside, without framing, encryption and transfer. Other requests take the network: the response is buffered as
// a whole, which is unsuitable for lists and watches.
type directHandler struct{ handler atomic.Pointer[http.Handler] }

// ServeDirectly passes the writes of these clients to handler, which serves the address that they are configured for,
// until the context ends.
func (c *Clients) ServeDirectly(ctx context.Context, handler http.Handler) {
	c.direct.handler.Store(&handler)
	context.AfterFunc(ctx, func() { c.direct.handler.Store(nil) })
}

var writeMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// handlerFor returns the handler for a request, or nil if it has to take the network.
func (d *directHandler) handlerFor(req *http.Request) http.Handler {
	if d == nil || !slices.Contains(writeMethods, req.Method) {
		return nil
	}
	if handler := d.handler.Load(); handler != nil {
		return *handler
	}
	return nil
}

// serve is a round trip without a network. The handler runs on the caller's goroutine, which saves growing a new stack
// for each request.
func serve(handler http.Handler, req *http.Request) (_ *http.Response, err error) {
	// The handler must not inherit values of the caller's context, such as the user or the request info: it determines
	// them itself. Whether the caller moves the logical cluster, and what it creates together, is nothing that it could determine.
	ctx, cancel := context.WithCancel(storage.InheritTogether(fence.WithDirect(context.Background()), req.Context()))
	defer cancel()
	if fence.IsMover(req.Context()) {
		ctx = fence.WithMover(ctx)
	}
	defer context.AfterFunc(req.Context(), cancel)()
	defer func() {
		if r := recover(); r != nil { // the filter chain has logged the details
			err = fmt.Errorf("%s %s: the handler panicked: %v", req.Method, req.URL.Path, r)
		}
	}()
	if req.Body != nil {
		defer req.Body.Close()
	}
	w := responserecorder.New()
	handler.ServeHTTP(w, newServerRequest(ctx, req))
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Response(req), nil
}

// newServerRequest returns a request as a server receives it from the network.
func newServerRequest(ctx context.Context, clientRequest *http.Request) *http.Request {
	target := &url.URL{Path: clientRequest.URL.Path, RawPath: clientRequest.URL.RawPath, RawQuery: clientRequest.URL.RawQuery}
	body := clientRequest.Body
	if body == nil {
		body = http.NoBody
	}
	req := &http.Request{
		Method: clientRequest.Method, URL: target, RequestURI: target.RequestURI(), Host: clientRequest.URL.Host, RemoteAddr: "127.0.0.1:0",
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: clientRequest.Header.Clone(), Body: body, ContentLength: clientRequest.ContentLength,
	}
	return req.WithContext(ctx)
}
