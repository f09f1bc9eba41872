package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/identity"
)

// Forwarder sends requests to backends that share certificates and header names.
type Forwarder struct {
	transport http.RoundTripper
	headers   identity.HeaderNames
	metrics   *Metrics
	// buffers copy the responses of ordinary requests, watchBuffers those of watches, which are many and slow.
	buffers, watchBuffers *bufferPool
	handleError           ErrorHandler
}

// ErrorHandler writes the response if there is none of a backend.
type ErrorHandler func(w http.ResponseWriter, req *http.Request, failure Failure)

// Failure is why there is no response.
type Failure struct {
	// Unsent reports that the backend cannot have received the request, so that the client may repeat it whatever its method.
	Unsent bool
	// Body is the error of reading the request body from the client, which is no failure of the backend; nil if there was none.
	Body error
}

// NewForwarder returns a forwarder that writes users into the given headers. If a backend does not answer, the
// response is status 502 without a body, and 400 if the body of the request cannot be read.
func NewForwarder(transport http.RoundTripper, headers identity.HeaderNames, metrics *Metrics) *Forwarder {
	return &Forwarder{
		transport: transport, headers: headers, metrics: metrics,
		buffers: newBufferPool(32 << 10), watchBuffers: newBufferPool(4 << 10),
		handleError: func(w http.ResponseWriter, _ *http.Request, failure Failure) {
			if failure.Body != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// WithErrorHandler returns a copy of the forwarder with another response for backends that do not answer.
func (f *Forwarder) WithErrorHandler(handle ErrorHandler) *Forwarder {
	out := *f
	out.handleError = handle
	return &out
}

// Forward sends the request to target, which replaces its URL except for the query, on behalf of the user; without a
// user it has no identity headers. Upgrades and streams are supported. backend is the label in metrics.
func (f *Forwarder) Forward(w http.ResponseWriter, req *http.Request, backend string, target *url.URL, u user.Info) {
	f.forward(w, req, backend, target, u, f.modifyResponse)
}

// errMoving is that of a response which ForwardRead drops.
var errMoving = errors.New("the logical cluster moves to another shard")

// ForwardRead is Forward of a request without a body to a shard, but drops the response of one that does not serve the logical cluster because it
// moves. It reports whether it has, so that nothing has been written.
func (f *Forwarder) ForwardRead(w http.ResponseWriter, req *http.Request, backend string, target *url.URL, u user.Info) (moving bool) {
	f.forward(w, req, backend, target, u, func(res *http.Response, req *http.Request, backend string) error {
		if moving = res.StatusCode == http.StatusServiceUnavailable && res.Header.Get(logicalcluster.MovingHeader) != ""; moving {
			return errMoving
		}
		return f.modifyResponse(res, req, backend)
	})
	return moving
}

func (f *Forwarder) forward(w http.ResponseWriter, req *http.Request, backend string, target *url.URL, u user.Info, modifyResponse func(*http.Response, *http.Request, string) error) {
	body := &clientBody{ReadCloser: req.Body}
	if req.Body != nil && req.Body != http.NoBody {
		observed := *req
		observed.Body = body
		req = &observed
	}
	proxy := httputil.ReverseProxy{
		Transport: f.transport,
		// Rewrite runs after the removal of the headers that the client lists in "Connection", which therefore cannot
		// remove what is set here.
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out = f.newOutboundRequest(p.Out, backend, target, u)
			p.SetXForwarded()
		},
		ModifyResponse: func(res *http.Response) error { return modifyResponse(res, req, backend) },
		// Without a FlushInterval, responses of unknown length are flushed at each write, so that watch events are
		// sent at once, and responses of known length are sent in as few frames as possible.
		BufferPool: f.bufferPool(req),
		ErrorLog:   errorLog,
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if errors.Is(err, errMoving) {
				return
			}
			if failed := body.err(); failed != nil {
				f.handleError(w, req, Failure{Body: failed})
				return
			}
			f.metrics.recordError(backend, err)
			// The watches of package shards log an outage once; here it would be logged for each request.
			if !errors.Is(err, context.Canceled) && req.Context().Err() == nil {
				klog.V(4).InfoS("Backend does not answer", "backend", backend, "host", target.Host, "err", err)
			}
			f.handleError(w, req, Failure{Unsent: isUnsent(err)})
		},
	}
	proxy.ServeHTTP(w, req)
}

// newOutboundRequest returns the request that is sent to a backend: method, query, host and body of the client's
// request, the headers of the allow-list, and the identity headers of the user. It has no trailers.
func (f *Forwarder) newOutboundRequest(in *http.Request, backend string, target *url.URL, u user.Info) *http.Request {
	out := (&http.Request{
		Method: in.Method,
		URL:    &url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path, RawPath: target.RawPath, RawQuery: in.URL.RawQuery},
		Host:   in.Host,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        outboundHeaders(in.Header, f.headers),
		Body:          in.Body,
		ContentLength: in.ContentLength,
	}).WithContext(in.Context())
	if u != nil {
		f.headers.Set(out.Header, u)
	}
	if out.Body != nil && out.Body != http.NoBody {
		body := out.Body
		if replayable := newReplayableBody(out); replayable != nil {
			body, out.GetBody = replayable.reader(), func() (io.ReadCloser, error) { return replayable.reader(), nil }
		}
		out.Body = newCountingBody(body, f.metrics.requestBytes.WithLabelValues(backend))
	}
	return out
}

// modifyResponse wraps the body of a response. The body of an upgrade is the connection itself and stays as it is.
func (f *Forwarder) modifyResponse(res *http.Response, req *http.Request, backend string) error {
	if res.StatusCode < http.StatusContinue {
		return fmt.Errorf("invalid status code %03d", res.StatusCode) // http.ResponseWriter panics for these
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	res.Header.Del(logicalcluster.MovingHeader) // it is from shards to front proxies
	res.Body = newCountingBody(res.Body, f.metrics.responseBytes.WithLabelValues(backend))
	if req.ProtoMajor > 1 {
		res.Body = &responseBody{ReadCloser: res.Body, request: req.Body}
	}
	return nil
}

// isUnsent reports whether an error occurred before the backend could read the request: there was no connection.
func isUnsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || tlsErrorType(err) != "" || strings.Contains(err.Error(), "TLS handshake timeout")
}

// bufferPool returns the pool of the buffer that copies the response. A watch keeps its buffer while it is open: a
// large one would be most of its memory.
func (f *Forwarder) bufferPool(req *http.Request) *bufferPool {
	if writetimeout.IsWatch(req) {
		return f.watchBuffers
	}
	return f.buffers
}

// bufferPool implements httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

func newBufferPool(size int) *bufferPool {
	return &bufferPool{sync.Pool{New: func() any {
		buffer := make([]byte, size)
		return &buffer
	}}}
}

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte { return *b.pool.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(buffer []byte) { b.pool.Put(&buffer) }

// responseBody closes the client's request when the response ends. A backend may answer before it has read the
// request, and an HTTP/2 client that receives an error may then stop sending without ending its stream. The transport
// would wait for the end of the stream and the client for the end of the response, because httputil.ReverseProxy does
// not let the transport close the request body. With HTTP/1.1, Close would block on the same bytes, but there the
// length ends a response.
type responseBody struct {
	io.ReadCloser
	request io.Closer
}

// Close closes the request body and the response body.
func (b *responseBody) Close() error {
	_ = b.request.Close() // nothing reads it after the response
	return b.ReadCloser.Close()
}

// errorLog receives what ReverseProxy logs when a client disconnects during a response.
var errorLog = log.New(verboseLog{}, "", 0)

type verboseLog struct{}

func (verboseLog) Write(p []byte) (int, error) {
	klog.V(4).InfoS("The reverse proxy reports an error", "text", string(p))
	return len(p), nil
}
