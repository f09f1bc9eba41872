// Package mount sends requests to mounted workspaces on to the servers that these stand for.
//
// The URL of a mount comes from an object that any tenant may have written. So nothing of the caller goes there but
// the question: no credentials, no identity, no header that is not on a list; and nothing of the shard: it presents no
// certificate. The server at the other end sees an anonymous client. Who needs to be known there goes through the front
// proxy, which names its users to servers that its own CA vouches for.
//
// Which workspace a path leads to is found out elsewhere (package filters), and what becomes of spec.URL is the
// workspace controller's business.
package mount

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

type key struct{}

// WithTarget returns a context whose request goes to a mount. The logical cluster of the context is the one that holds
// the mounted workspace.
func WithTarget(ctx context.Context, target *url.URL) context.Context {
	return context.WithValue(ctx, key{}, target)
}

func targetOf(ctx context.Context) (*url.URL, bool) {
	target, ok := ctx.Value(key{}).(*url.URL)
	return target, ok
}

// ParseURL reads the URL of a mount: absolute, https, and nothing but a place.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case parsed.Scheme != "https" || parsed.Host == "":
		return nil, errors.New("it must start with https:// and name a host")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, errors.New("it must hold no user, query or fragment")
	}
	return parsed, nil
}

// Target returns the URL of a path, as the client escaped it, on the mount. Paths that climb out of it are an error.
func Target(base, escaped string) (*url.URL, error) {
	parsed, err := ParseURL(base)
	if err != nil {
		return nil, fmt.Errorf("URL of the mount: %w", err)
	}
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	for _, segment := range strings.Split(path, "/") {
		if segment == "." || segment == ".." {
			return nil, errors.New("the path climbs")
		}
	}
	target := *parsed
	target.Path = strings.TrimSuffix(parsed.Path, "/") + path
	target.RawPath = strings.TrimSuffix(parsed.EscapedPath(), "/") + escaped
	return &target, nil
}

// Authorizer lets those use a mount who may enter the workspace that it is in. Other requests go to delegate.
func Authorizer(delegate authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if _, ok := targetOf(ctx); ok && !strings.HasPrefix(a.GetVerb(), "impersonate") {
			a = authorizer.AttributesRecord{User: a.GetUser(), Verb: "access", Path: "/"}
			if slices.Contains(a.GetUser().GetGroups(), user.AllUnauthenticated) {
				return authorizer.DecisionDeny, "", nil
			}
		}
		return delegate.Authorize(ctx, a)
	})
}

// passed are the request headers that go to a mount.
var passed = []string{"Accept", "Accept-Language", "Content-Type", "Content-Encoding", "If-Match", "If-None-Match", "User-Agent"}

// With sends requests to mounts on, and passes on everything else. It belongs below authorization.
func With(next http.Handler) http.Handler {
	transport := newTransport()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		target, ok := targetOf(req.Context())
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		if req.Header.Get("Upgrade") != "" {
			http.Error(w, "connections to mounted workspaces cannot be upgraded here: use the front proxy", http.StatusNotImplemented)
			return
		}
		forward(transport, target).ServeHTTP(w, req)
	})
}

func forward(transport http.RoundTripper, target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			query := p.Out.URL.RawQuery
			to := *target
			p.Out.URL, p.Out.Host, p.Out.Trailer = &to, target.Host, nil
			p.Out.URL.RawQuery = query
			header := http.Header{}
			for _, name := range passed {
				if values := p.In.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			p.Out.Header = header
		},
		ModifyResponse: func(res *http.Response) error {
			res.Header.Del("Set-Cookie") // it would be one of this shard
			if res.StatusCode < http.StatusContinue {
				return fmt.Errorf("status %03d is none", res.StatusCode) // net/http reads such numbers, and panics when told to send one
			}
			return nil
		},
		FlushInterval: -1, // events leave when they come
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				klog.FromContext(req.Context()).V(4).Info("A mount does not answer", "host", target.Host, "err", err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// newTransport returns connections to mounts. Certificates are not verified: mounts have CAs of their own, of which the
// contract says nothing, and no secret goes there.
func newTransport() http.RoundTripper {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: onlyHosts}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // see above
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   2,
		IdleConnTimeout:       30 * time.Second,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
	}
}

// onlyHosts refuses addresses that are no servers of a tenant's, whatever name led to them: metadata services of clouds
// live at link-local ones.
func onlyHosts(_, address string, _ syscall.RawConn) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := parsed.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("mounts cannot lead to %s", ip)
	}
	return nil
}
