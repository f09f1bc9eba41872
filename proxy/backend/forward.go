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

	"github.com/atoll-dev/atoll/proxy/identity"
)

// Forwarder sends requests to backends that share certificates and header names.
type Forwarder struct {
	transport http.RoundTripper
	headers   identity.HeaderNames
	metrics   *Metrics
	// buffers are for answers that end, events for those that stay open and bring little at a time.
	buffers, events *buffers
	fail            Failure
}

// Failure answers a request that its backend did not answer. unsent tells that the backend has not seen the request, so
// that it can be sent again whatever it is.
type Failure func(w http.ResponseWriter, req *http.Request, unsent bool)

// NewForwarder returns a forwarder over the transport, with identities in the headers of the given names. A backend that
// does not answer is told with status 502 and no body.
func NewForwarder(transport http.RoundTripper, headers identity.HeaderNames, metrics *Metrics) *Forwarder {
	return &Forwarder{transport: transport, headers: headers, metrics: metrics,
		buffers: newBuffers(32 << 10), events: newBuffers(4 << 10),
		fail: func(w http.ResponseWriter, _ *http.Request, _ bool) { w.WriteHeader(http.StatusBadGateway) }}
}

// WithFailure returns a forwarder that tells of backends that do not answer in another way.
func (f *Forwarder) WithFailure(fail Failure) *Forwarder {
	out := *f
	out.fail = fail
	return &out
}

// Forward sends the request to target, which replaces its URL but for the query, on behalf of the user; without one
// it goes on without an identity. Upgrades and streams pass through. shard is the label in metrics.
func (f *Forwarder) Forward(w http.ResponseWriter, req *http.Request, shard string, target *url.URL, u user.Info) {
	proxy := httputil.ReverseProxy{
		Transport: f.transport,
		// Rewrite runs after what the client lists in "Connection" was removed, so that a client cannot use that
		// header to strip what is set here.
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = target.Scheme, target.Host
			p.Out.URL.Path, p.Out.URL.RawPath = target.Path, target.RawPath
			p.Out.URL.Opaque = "" // a request line without a path would otherwise go out as the client wrote it
			// Host stays what the client asked for.
			p.Out.Header = f.headers.WithoutIdentity(p.Out.Header)
			p.Out.Trailer = nil // no Kubernetes client sends any
			p.SetXForwarded()
			if u != nil {
				f.headers.Set(p.Out.Header, u)
			}
			if p.Out.Body != nil && p.Out.Body != http.NoBody {
				body := p.Out.Body
				if sent := newRewindable(p.Out); sent != nil {
					body, p.Out.GetBody = sent.attempt(), func() (io.ReadCloser, error) { return sent.attempt(), nil }
				}
				p.Out.Body = f.counted(body, f.metrics.requestBytes.WithLabelValues(shard).Add)
			}
		},
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode < http.StatusContinue {
				return fmt.Errorf("status %03d is none", res.StatusCode) // net/http reads such numbers, and panics when told to send one
			}
			// The body of an upgrade is the connection itself and must stay what it is.
			if res.StatusCode != http.StatusSwitchingProtocols {
				res.Body = f.counted(res.Body, f.metrics.responseBytes.WithLabelValues(shard).Add)
				if req.ProtoMajor > 1 {
					res.Body = &lastWord{ReadCloser: res.Body, request: req.Body}
				}
			}
			return nil
		},
		// An answer of unknown length is flushed as it comes, so that events leave at once; one of known length leaves in
		// as few frames as it fits. That is what no FlushInterval means.
		BufferPool: f.buffersFor(req),
		ErrorLog:   quiet,
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			f.metrics.failed(shard, err)
			// An outage is logged once, by who follows the shard; here it would be once per request.
			if !errors.Is(err, context.Canceled) && req.Context().Err() == nil {
				klog.V(4).InfoS("Backend does not answer", "backend", shard, "host", target.Host, "err", err)
			}
			f.fail(w, req, unsent(err))
		},
	}
	proxy.ServeHTTP(w, req)
}

// unsent tells whether an error came before the backend could read the request: there was no connection.
func unsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || tlsErrorKind(err) != "" || strings.Contains(err.Error(), "TLS handshake timeout")
}

func (f *Forwarder) counted(body io.ReadCloser, add func(float64)) io.ReadCloser {
	return &countingBody{ReadCloser: body, count: func(n int64) { add(float64(n)) }}
}

// buffersFor returns where the buffer comes from through which an answer is copied. A watch holds it as long as it is
// open: with large ones, they would be most of what an open watch costs.
func (f *Forwarder) buffersFor(req *http.Request) *buffers {
	query := req.URL.RawQuery
	if strings.Contains(query, "watch=") || strings.Contains(query, "follow=") { // roughly is enough: either is right
		return f.events
	}
	return f.buffers
}

// buffers lends the buffers of copying.
type buffers struct{ pool sync.Pool }

func newBuffers(size int) *buffers {
	return &buffers{sync.Pool{New: func() any {
		buffer := make([]byte, size)
		return &buffer
	}}}
}

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte { return *b.pool.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }

// lastWord ends a request with its answer. A server may answer without reading the request, and a client of HTTP/2 that
// is told an error stops sending then, without an end. The transport would wait for that end and the client for ours, for
// ever: httputil.ReverseProxy keeps the transport from closing what it reads. (With HTTP/1.1 a Close would wait for the
// same bytes, but there the client sees the end of an answer by its length.)
type lastWord struct {
	io.ReadCloser
	request io.Closer
}

func (l *lastWord) Close() error {
	_ = l.request.Close() // there is nobody left to read it
	return l.ReadCloser.Close()
}

// quiet receives what ReverseProxy says when a client goes away in the middle of an answer.
var quiet = log.New(klogV4{}, "", 0)

type klogV4 struct{}

func (klogV4) Write(p []byte) (int, error) {
	klog.V(4).Info(string(p))
	return len(p), nil
}
