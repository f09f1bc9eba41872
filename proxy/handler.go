package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// newHandler returns the path of a request through the proxy: the filters, listed in the order in which a request
// passes them, and then the routes of the mapping file, each of which is a proxyHandler.
func (s *Server) newHandler(routes http.Handler) http.Handler {
	filters := []func(http.Handler) http.Handler{
		s.config.WriteTimeouts.WithTimeouts,
		s.withCORS,
		s.withPanicRecovery,
		s.metrics.WithRequestDuration,
		s.withLocalEndpoints, // everything below needs the outcome of authentication
		s.withLongRunningTermination,
		withServiceAccountCluster,
	}
	handler := routes
	for _, filter := range slices.Backward(filters) {
		handler = filter(handler)
	}
	return handler
}

// proxyHandler serves one entry of the mapping file.
type proxyHandler struct {
	*router
	resolve   func(*http.Request) (destination, error)
	forwarder *backend.Forwarder
}

// ServeHTTP resolves, authenticates and forwards. Resolution comes first: a path that does not resolve gets the same
// response for every user. The outbound request is built in backend.Forwarder from the destination, the user and the
// headers of its allow-list.
func (h *proxyHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	to, err := h.resolve(req)
	waits := errors.Is(err, errMoving) && isRead(req)
	if err != nil && !waits {
		h.respond.resolutionError(w, req, err)
		return
	}
	u, err := h.authenticator.Authenticate(req, to.tokens)
	if err != nil && waits {
		// Nobody knows the issuers of the workspace, whose tokens are right.
		h.respond.resolutionError(w, req, errMoving)
		return
	}
	if err != nil {
		klog.V(2).InfoS("Failed to authenticate the request", "err", err)
		h.respond.authenticationError(w, req, err)
		return
	}
	release, ok := h.inFlight.Acquire(inflight.UserOf(req, u), backend.IsLongRunning(req))
	if !ok {
		h.respond.tooManyRequests(w, req)
		return
	}
	defer release()
	if to.mountHops > 0 {
		req = mountRequest(req, to.mountHops)
	}
	if !waits && (!to.isShard || !isRead(req)) {
		h.forwarder.Forward(w, req, to.backend, to.url, u)
		return
	}
	h.forwardRead(w, req, to, u)
}

// router holds what the entries of the mapping file share.
type router struct {
	index         *index.Index
	authenticator *identity.Authenticator
	respond       responder
	inFlight      *inflight.Limiter
	// hasShards is set if the mapping file has an entry for the shards. Without one no logical cluster is resolved.
	hasShards bool

	// types and issuers are set if workspace types may name token issuers.
	types   *workspacetypes.Registry
	issuers *issuers.Authenticators
}

// destination is where a request is sent.
type destination struct {
	// backend is the name of the backend in metrics and logs.
	backend string
	url     *url.URL
	// tokens authenticates the tokens of the issuers that the type of the workspace names; nil if it names none.
	tokens authenticator.Token
	// isShard is whether a shard serves the logical cluster, which nothing else may say to move.
	isShard bool
	// mountHops is the number of mounts that the request has passed, this one included; 0 if this is no mount.
	mountHops int
}

// Reasons for which a request is not forwarded, beside internal errors. See responder.resolutionError.
var (
	errForbidden   = errors.New("the path does not resolve")
	errUnavailable = errors.New("a workspace in the path is unavailable")
	errNotSynced   = errors.New("a shard that may have the logical cluster is not synced")
	errMoving      = fmt.Errorf("the logical cluster moves: %w", errNotSynced)
	errMountLoop   = errors.New("too many mounts lead to each other")
)

// resolveCluster returns the shard, or the mount, of the logical cluster in a path /clusters/<path>/<rest>.
func (r *router) resolveCluster(req *http.Request) (destination, error) {
	path, rest, err := parseClusterPath(req.URL)
	if err != nil || hasDotSegments(req.URL) {
		return destination{}, errForbidden
	}
	route, resolution := r.index.Load().Resolve(path)
	switch resolution {
	case index.Found:
		shard := route.Shard
		if shard.Err != nil {
			klog.V(2).InfoS("Shard has an invalid base URL", "shard", shard.Name, "err", shard.Err)
			return destination{}, internalError("the base URL of the shard is invalid")
		}
		location, err := appendPath(shard.BaseURL, route.Cluster.Path().URLPath()+rest)
		return destination{backend: shard.Name, url: location, tokens: r.workspaceTokens(route), isShard: true}, err
	case index.Mounted:
		return resolveMount(req, route, rest)
	default:
		return destination{}, resolutionError(resolution)
	}
}

// resolveBackend returns the backend of an entry, with the whole path of the request. A logical cluster in the path
// must resolve; the path stays as it is.
func (r *router) resolveBackend(req *http.Request, name string, base *url.URL) (destination, error) {
	if hasDotSegments(req.URL) {
		return destination{}, errForbidden
	}
	location, err := appendPath(base, req.URL.EscapedPath())
	if err != nil {
		return destination{}, err
	}
	to := destination{backend: name, url: location}

	cluster, found := req.PathValue("cluster"), true
	placeholder := cluster != ""
	if !placeholder {
		cluster, found = clusterInPath(req.URL)
	}
	if !r.hasShards || !found || cluster == logicalcluster.Wildcard.String() {
		return to, nil
	}
	path, err := logicalcluster.ParsePath(cluster)
	if err != nil {
		return destination{}, errForbidden
	}
	route, resolution := r.index.Load().Resolve(path)
	switch {
	case resolution == index.Found && placeholder:
		to.tokens = r.workspaceTokens(route)
		return to, nil
	case resolution == index.Found, resolution == index.Mounted:
		return to, nil
	default:
		return destination{}, resolutionError(resolution)
	}
}

// resolutionError returns the error for a path that leads neither to a logical cluster nor to a mount.
func resolutionError(resolution index.Resolution) error {
	switch resolution {
	case index.Unavailable:
		return errUnavailable
	case index.NotSynced:
		return errNotSynced
	case index.Moving:
		return errMoving
	default:
		return errForbidden
	}
}

// workspaceTokens returns an authenticator for the issuers that the type of a workspace names, nil if it names none.
func (r *router) workspaceTokens(route index.Route) authenticator.Token {
	if r.types == nil || route.Type == "" {
		return nil
	}
	accepted := r.types.Issuers(route.Type)
	if len(accepted) == 0 {
		return nil
	}
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return r.issuers.Authenticate(ctx, route.Cluster, accepted, token)
	})
}

// withCORS implements --cors-allowed-origins.
func (s *Server) withCORS(next http.Handler) http.Handler {
	return genericfilters.WithCORS(next, s.config.CORSAllowedOrigins, nil, nil, nil, "true")
}

// withPanicRecovery responds to a panic with status 500. http.ErrAbortHandler passes: it aborts a response whose
// backend broke the stream.
func (s *Server) withPanicRecovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			klog.ErrorS(nil, "Panic while serving a request", "panic", p, "method", req.Method, "stack", string(debug.Stack()))
			s.respond.internal(w, req, "this request caused the proxy to fail")
		}()
		next.ServeHTTP(w, req)
	})
}

// withLocalEndpoints serves the proxy's own paths, the only ones that are served without an authenticated user (wall
// W7). /metrics authenticates and authorizes by itself.
func (s *Server) withLocalEndpoints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/livez":
			writeOK(w)
		case "/readyz":
			s.serveReadyz(w)
		case "/metrics":
			s.serveMetrics(w, req)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// withLongRunningTermination ends watches and upgrades when the server shuts down. They would otherwise last until the
// shutdown timeout; their clients reconnect to another replica.
func (s *Server) withLongRunningTermination(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !backend.IsLongRunning(req) {
			next.ServeHTTP(w, req)
			return
		}
		if s.shuttingDown.Err() != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(s.shuttingDown, cancel)()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// shardedRequestHeader marks requests that already passed a proxy.
const shardedRequestHeader = "X-Kubernetes-Sharded-Request"

// withServiceAccountCluster prepends /clusters/<logical cluster> to the path of requests with a service account
// token, so that stock clients in pods can use the URL of the proxy without a path. The claim in the token selects
// the path only; the token is authenticated later.
func withServiceAccountCluster(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := req.URL.Path
		if strings.HasPrefix(path, clustersPrefix) || strings.HasPrefix(path, "/services/") || req.Header.Get(shardedRequestHeader) != "" {
			next.ServeHTTP(w, req)
			return
		}
		if cluster, ok := serviceaccounttokens.ClusterClaim(identity.BearerToken(req)); ok {
			prefix := cluster.Path().URLPath()
			req = req.Clone(req.Context())
			req.URL.Path = prefix + path
			if req.URL.RawPath != "" {
				req.URL.RawPath = prefix + req.URL.RawPath
			}
		}
		next.ServeHTTP(w, req)
	})
}

const clustersPrefix = "/clusters/"

// parseClusterPath splits a URL path /clusters/<path>/<rest>. Rest starts with "/" and keeps the escaping of the
// client.
func parseClusterPath(u *url.URL) (path logicalcluster.Path, rest string, err error) {
	raw, ok := strings.CutPrefix(u.EscapedPath(), clustersPrefix)
	if !ok {
		return path, "", fmt.Errorf("path does not start with %s", clustersPrefix)
	}
	segment, rest, ok := strings.Cut(raw, "/")
	if !ok {
		return path, "", logicalcluster.ErrNoClusterSegment
	}
	if segment, err = url.PathUnescape(segment); err != nil {
		return path, "", err
	}
	path, err = logicalcluster.ParsePath(segment)
	return path, "/" + rest, err
}

// clusterInPath returns the logical cluster in a path of another entry than /clusters/: the first segment after
// "/clusters/" that is followed by a slash.
func clusterInPath(u *url.URL) (string, bool) {
	_, after, ok := strings.Cut(u.Path, clustersPrefix)
	if !ok {
		return "", false
	}
	segment, _, ok := strings.Cut(after, "/")
	return segment, ok
}

// hasDotSegments reports whether the decoded path has "." or ".." segments. A backend may resolve them to a path
// outside of the logical cluster that was resolved here.
func hasDotSegments(u *url.URL) bool {
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// appendPath returns base with an escaped path appended to its own.
func appendPath(base *url.URL, escaped string) (*url.URL, error) {
	raw := strings.TrimSuffix(base.EscapedPath(), "/") + escaped
	path, err := url.PathUnescape(raw)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", raw, err)
	}
	out := *base
	out.Path, out.RawPath = path, raw
	return &out, nil
}
