// Package web is the HTTP server of the provider: the portal at /ui/, the MCP server at /mcp, and the API of workspaces at /clusters/. It
// forwards the latter to the front proxy, so that the portal reaches it on its own origin. The server has no permissions: a request has the
// credentials of its caller or none. The exception is /installation/, which is off by default: it reads the operator's objects with credentials
// of the server, for callers whom the workspace root allows that. The package does not depend on templates or instances.
package web

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// Config configures the handler.
type Config struct {
	// FrontProxy is the client configuration of the front proxy; only its address and CA are used.
	FrontProxy *rest.Config
	// UI serves /ui/ and sets its own Content-Security-Policy. MCP serves /mcp. If one is nil, its path returns status 404.
	UI, MCP http.Handler
	// Installation is served at /installation/; if it is nil, the path returns status 404.
	Installation *Installation
	// Limits bound the resources that requests use.
	Limits Limits
	Log    logr.Logger
}

// SeatLimit bounds the requests that are served at a time: those of all callers, and those with the same token.
type SeatLimit struct{ All, PerToken int }

// Limits bound the resources that requests use. The front proxy and its shards have limits per user.
type Limits struct {
	// Requests and Watches bound how many are served at a time. Above them, the response has status 429.
	Requests, Watches SeatLimit
	// Body is the maximum size of a request body in bytes.
	Body int64
	// HeaderTimeout and BodyTimeout are how long the client may take to send them. RequestTimeout is how long an API request may take
	// that is not a watch.
	HeaderTimeout, BodyTimeout, RequestTimeout time.Duration
	// Write are the timeouts for clients that do not read.
	Write writetimeout.Timeouts
}

// DefaultLimits returns the limits for servers. Shards refuse bodies above 3 MiB, and end requests after a minute.
func DefaultLimits() Limits {
	return Limits{
		Requests: SeatLimit{400, 50}, Watches: SeatLimit{2000, 200}, Body: 3 << 20, HeaderTimeout: 10 * time.Second, BodyTimeout: 30 * time.Second,
		RequestTimeout: 70 * time.Second, Write: writetimeout.Default(),
	}
}

// NewHandler returns the handler. Long-running responses end with the context.
func NewHandler(ctx context.Context, cfg Config) (http.Handler, error) {
	clusters, err := newForwarder(ctx, cfg)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.Handle(clustersPrefix, clusters)
	if cfg.Installation != nil {
		reader, err := newInstallationReader(ctx, cfg, clusters)
		if err != nil {
			return nil, err
		}
		mux.Handle(installationPath, reader)
	}
	if cfg.UI != nil {
		mux.Handle("GET /ui/", cfg.UI)
		mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	}
	if cfg.MCP != nil {
		mux.Handle("/mcp", withoutCache(cfg.MCP))
	}
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, apierrors.NewForbidden(noResource, "", errors.New("requests from other origins are refused")))
	}))
	limits := &limiter{newSeats(cfg.Limits.Requests), newSeats(cfg.Limits.Watches)}
	handler := limits.withLimit(withBodyLimit(cfg.Limits, mux))
	return cfg.Limits.Write.WithTimeouts(withSecurityHeaders(withCanonicalPath(origins.Handler(handler)))), nil
}

// withSecurityHeaders sets security headers for browsers. /clusters/ returns data of tenants, which browsers must never render as a page.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'; sandbox",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		if req.TLS != nil {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, req)
	})
}

func withoutCache(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, req)
	})
}

// withCanonicalPath refuses paths that another server may interpret differently, instead of cleaning them.
func withCanonicalPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !isCanonical(req.URL.Path, req.URL.EscapedPath()) {
			writeStatus(w, apierrors.NewBadRequest("the path has empty segments, dot segments, or escaped slashes"))
			return
		}
		next.ServeHTTP(w, req)
	})
}

// isCanonical reports whether a path is clean, except for a slash at the end, and has the same segments when it is decoded.
func isCanonical(decoded, escaped string) bool {
	trimmed := strings.TrimSuffix(decoded, "/")
	return strings.HasPrefix(decoded, "/") && (trimmed == "" || path.Clean(trimmed) == trimmed) &&
		strings.Count(decoded, "/") == strings.Count(escaped, "/") && !strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
}
