// Package mount proxies requests to mounted workspaces to the servers that the mounts reference.
//
// The URL of a mount is tenant input. Therefore only the request itself is forwarded: no credentials, no identity, only
// headers of an allow list, and no client certificate of the shard. The server sees an anonymous client. Clients that
// need an identity there use the front proxy, which sends user headers to servers that its own CA has signed.
//
// Paths are resolved to workspaces by package filters; spec.URL is maintained by the workspace controller.
package mount

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/dialguard"
	"github.com/atoll-dev/atoll/logicalcluster"
)

type key struct{}

// WithTarget returns a context whose request is proxied to a mount. The logical cluster of the context is the one that
// contains the mounted workspace.
func WithTarget(ctx context.Context, target *url.URL) context.Context {
	return context.WithValue(ctx, key{}, target)
}

// HasTarget reports whether a request is sent to a mount.
func HasTarget(ctx context.Context) bool {
	_, ok := targetFrom(ctx)
	return ok
}

func targetFrom(ctx context.Context) (*url.URL, bool) {
	target, ok := ctx.Value(key{}).(*url.URL)
	return target, ok
}

// ParseURL parses the URL of a mount: absolute, https, without user, query and fragment.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case parsed.Scheme != "https" || parsed.Host == "":
		return nil, errors.New("it must start with https:// and contain a host")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, errors.New("it must not contain a user, query or fragment")
	}
	return parsed, nil
}

// Target joins the URL of a mount and a path in the client's escaping. Paths with dot segments are rejected.
func Target(base, escaped string) (*url.URL, error) {
	parsed, err := ParseURL(base)
	if err != nil {
		return nil, fmt.Errorf("parsing the URL of the mount: %w", err)
	}
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	for _, segment := range strings.Split(path, "/") {
		if segment == "." || segment == ".." {
			return nil, errors.New("the path contains a dot segment")
		}
	}
	target := *parsed
	target.Path = strings.TrimSuffix(parsed.Path, "/") + path
	target.RawPath = strings.TrimSuffix(parsed.EscapedPath(), "/") + escaped
	return &target, nil
}

// Authorizer allows requests to a mount for users with access to the workspace that contains it. Other requests are
// delegated.
func Authorizer(delegate authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if _, ok := targetFrom(ctx); ok && !strings.HasPrefix(a.GetVerb(), "impersonate") {
			a = authorizer.AttributesRecord{User: a.GetUser(), Verb: "access", Path: "/"}
			if slices.Contains(a.GetUser().GetGroups(), user.AllUnauthenticated) {
				return authorizer.DecisionDeny, "", nil
			}
		}
		return delegate.Authorize(ctx, a)
	})
}

// forwardedHeaders are the request headers that are sent to a mount.
var forwardedHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Content-Encoding", "If-Match", "If-None-Match", "User-Agent"}

// WithProxy proxies requests to mounts and passes all others to next. It belongs below authorization.
func WithProxy(next http.Handler) http.Handler {
	transport := newTransport()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		target, ok := targetFrom(req.Context())
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		if req.Header.Get("Upgrade") != "" {
			http.Error(w, "connections to mounted workspaces cannot be upgraded here: use the front proxy", http.StatusNotImplemented)
			return
		}
		flowcontrol.WatchInitialized(req.Context()) // else a watch occupies its seats as long as it is open
		newProxy(transport, target).ServeHTTP(w, req)
	})
}

func newProxy(transport http.RoundTripper, target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			query := p.Out.URL.RawQuery
			to := *target
			p.Out.URL, p.Out.Host, p.Out.Trailer = &to, target.Host, nil
			p.Out.URL.RawQuery = query
			header := http.Header{}
			for _, name := range forwardedHeaders {
				if values := p.In.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			p.Out.Header = header
		},
		ModifyResponse: func(res *http.Response) error {
			res.Header.Del("Set-Cookie")                // clients would send the cookie to this shard
			res.Header.Del(logicalcluster.MovingHeader) // front proxies would repeat reads
			if res.StatusCode < http.StatusContinue {
				return fmt.Errorf("invalid status code %03d", res.StatusCode) // net/http accepts it in responses, but panics writing it
			}
			return nil
		},
		FlushInterval: -1, // watch events are sent immediately
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				klog.FromContext(req.Context()).V(4).Info("Failed to proxy to a mount", "host", target.Host, "err", err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// receiveBuffer is how many bytes of a response are read ahead of the client.
const receiveBuffer = 64 << 10

// newTransport returns the transport to mounts. Certificates are not verified: the API has no field for the CA of a
// mount, and requests carry no secrets.
func newTransport() http.RoundTripper {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: dialguard.Control}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, // see above
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   2,
		IdleConnTimeout:       30 * time.Second,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer},
	}
}
