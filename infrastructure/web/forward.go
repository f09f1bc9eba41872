package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const clustersPrefix = "/clusters/"

// The allow-lists. Content-Length is not on the list because the outbound request sets its own. Headers that name another identity
// (Impersonate-*, X-Remote-*, cookies) are not on the list.
var (
	methods         = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	requestHeaders  = []string{"Authorization", "Accept", "Content-Type", "User-Agent"}
	responseHeaders = []string{"Content-Type", "Content-Length", "Cache-Control", "Retry-After", "Warning", "Audit-Id"}
	// roots are the path prefixes of a workspace that are reachable.
	roots = []string{"api", "apis", "openapi"}
	// read are the paths of a workspace at which a shard serves its usage and its audit events. Nothing below them is reachable.
	read = []string{"/metrics", "/audit"}
	// readMethods are the methods for these.
	readMethods = []string{http.MethodGet}
)

var noResource = schema.GroupResource{}

var bearer = regexp.MustCompile(`^(?i:Bearer) +([A-Za-z0-9._~+/-]+=*)$`)

// BearerToken returns the bearer token of a request. It ignores other schemes, because browsers send them without user action.
func BearerToken(header http.Header) (string, bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	found := bearer.FindStringSubmatch(values[0])
	if found == nil {
		return "", false
	}
	return found[1], true
}

// Challenge is the value of WWW-Authenticate in responses with status 401.
const Challenge = `Bearer realm="kcp"`

// forwarder forwards requests to the front proxy with their own credentials.
type forwarder struct {
	proxy        *httputil.ReverseProxy
	host         string // of the front proxy
	transport    http.RoundTripper
	shuttingDown context.Context
	timeout      time.Duration
}

func newForwarder(ctx context.Context, cfg Config) (*forwarder, error) {
	target, err := url.Parse(cfg.FrontProxy.Host)
	if err != nil || target.Scheme != "https" || target.Host == "" {
		return nil, fmt.Errorf("the address of the front proxy is %q, expected an https URL", cfg.FrontProxy.Host)
	}
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(cfg.FrontProxy))
	if err != nil {
		return nil, fmt.Errorf("the CA of the front proxy: %w", err)
	}
	transport := newTransport(config)
	return &forwarder{host: target.Host, transport: transport, shuttingDown: ctx, timeout: cfg.Limits.RequestTimeout, proxy: &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {}, // the transport creates a new request; without Director, no header is added
		Transport: &allowList{host: target.Host, next: transport},
		// Without a FlushInterval, the proxy flushes responses of unknown length at each write, so that it sends watch events immediately.
		ErrorLog:     log.New(io.Discard, "", 0), // it only receives errors of clients that disconnect during a response
		ErrorHandler: errorHandler(cfg.Log),
	}}, nil
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if refused := check(req); refused != nil {
		writeStatus(w, refused)
		return
	}
	req.Header.Del("Connection") // a ReverseProxy removes the headers that it lists, which could include the token
	ctx, cancel := context.WithCancel(req.Context())
	if writetimeout.IsWatch(req) {
		defer context.AfterFunc(f.shuttingDown, cancel)()
	} else {
		defer time.AfterFunc(f.timeout, cancel).Stop()
	}
	defer cancel()
	f.proxy.ServeHTTP(w, req.WithContext(ctx))
}

// check returns an error if a request must not be forwarded.
func check(req *http.Request) *apierrors.StatusError {
	target, err := logicalcluster.FromURLPath(req.URL.Path)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	name, isName := target.Path.Name()
	root, _, _ := strings.Cut(strings.TrimPrefix(target.Rest, "/"), "/")
	isRead := slices.Contains(read, target.Rest)
	if isName && (name.IsWildcard() || name.IsSystem()) || !isRead && !slices.Contains(roots, root) {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, req.Method, noResource, "", "only the API of workspaces is served here", 0, false)
	}
	allowed := methods
	if isRead {
		allowed = readMethods
	}
	if !slices.Contains(allowed, req.Method) {
		return apierrors.NewMethodNotSupported(noResource, req.Method)
	}
	if req.Header.Get("Upgrade") != "" {
		return apierrors.NewBadRequest("connections cannot be upgraded here: use the front proxy")
	}
	if _, ok := BearerToken(req.Header); !ok {
		return apierrors.NewUnauthorized("a bearer token is required")
	}
	return nil
}

func errorHandler(logger logr.Logger) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, _ *http.Request, err error) {
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			writeStatus(w, apierrors.NewRequestEntityTooLargeError("the request body is too large"))
		case errors.Is(err, os.ErrDeadlineExceeded):
			writeStatus(w, apierrors.NewGenericServerResponse(http.StatusRequestTimeout, "", noResource, "", "the request body did not arrive in time", 0, false))
		default:
			if !errors.Is(err, context.Canceled) {
				logger.V(1).Info("The front proxy does not answer", "err", err.Error())
			}
			writeStatus(w, apierrors.NewServiceUnavailable("the front proxy does not answer"))
		}
	}
}

// allowList sends new requests and returns new responses, which contain only what is on the lists. The lists contain no trailers, no interim
// responses (which a ReverseProxy copies with all their headers) and no upgrades.
type allowList struct {
	host string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *allowList) RoundTrip(in *http.Request) (*http.Response, error) {
	// A new context omits the values with which a ReverseProxy traces interim responses.
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(in.Context(), cancel)
	end := func() { stop(); cancel() }
	res, err := a.next.RoundTrip((&http.Request{
		Method: in.Method,
		URL:    &url.URL{Scheme: "https", Host: a.host, Path: in.URL.Path, RawQuery: in.URL.RawQuery},
		Header: pick(in.Header, requestHeaders),
		Body:   in.Body, ContentLength: in.ContentLength,
	}).WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	if res.StatusCode < http.StatusOK {
		end()
		_ = res.Body.Close()
		return nil, fmt.Errorf("status code %d", res.StatusCode)
	}
	header := pick(res.Header, responseHeaders)
	if res.StatusCode == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", Challenge)
	}
	return &http.Response{
		StatusCode: res.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: header,
		ContentLength: res.ContentLength, Body: &endingBody{res.Body, end}, Request: in,
	}, nil
}

func pick(from http.Header, names []string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if values := from.Values(name); len(values) > 0 {
			out[name] = values
		}
	}
	return out
}

// endingBody releases the context of a response when the body is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// receiveBuffer is how many bytes of a response the transport reads ahead of the client.
const receiveBuffer = 64 << 10

func newTransport(config *tls.Config) http.RoundTripper {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// writeStatus writes an error in the same form as the API servers.
func writeStatus(w http.ResponseWriter, failed *apierrors.StatusError) {
	status := failed.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	text, err := json.Marshal(status)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if status.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", Challenge)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(text)
}
