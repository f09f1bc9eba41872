// Package filters contains the HTTP filters that extend a stock API server to many logical clusters: they resolve
// "/clusters/<name|path>", put the name into the context, and restrict shard-level endpoints and wildcard requests.
// Authentication, authorization and audit are the stock chain's; no filter here decides about permissions.
package filters

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
	"github.com/atoll-dev/atoll/shardserver/usage"
)

// Errors of paths that do not resolve to a logical cluster that this shard can serve.
var (
	errNotFound     = errors.New("no such workspace")
	errRemote       = errors.New("the workspace is on another shard")
	errNotAvailable = errors.New("a workspace on the path is unavailable")
)

// mountError is the error of a path that resolves to a mount of another server.
type mountError struct {
	cluster logicalcluster.Name // the logical cluster of the mounted workspace
	url     string
}

func (m *mountError) Error() string { return "the workspace is mounted from " + m.url }

// Resolver resolves paths to logical clusters on this shard.
type Resolver interface {
	// Resolve returns the logical cluster of the path. It reads from memory only, unless mayRead allows more. Its
	// errors are errNotFound, errRemote, errNotAvailable, a mountError, or a failure to read.
	Resolve(ctx context.Context, path logicalcluster.Path, mayRead func() bool) (logicalcluster.Name, error)
}

// WithCluster resolves the logical cluster of a request's URL into its context and strips it from the path. Names and
// the wildcard are not resolved: authorization checks whether they exist. A request without /clusters/ has no logical
// cluster in its context. Requests to shard-level endpoints below a logical cluster are passed to shardLevelHandler.
func WithCluster(handler, shardLevelHandler http.Handler, resolver Resolver, limiter *ReadLimiter, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		target, err := logicalcluster.FromURLPath(req.URL.Path)
		if err != nil {
			writeError(w, req, serializer, apierrors.NewBadRequest(err.Error()))
			return
		}
		if target.Path.Empty() {
			handler.ServeHTTP(w, req)
			return
		}
		cluster, isName := target.Path.Name()
		if !isName {
			cluster, err = resolver.Resolve(req.Context(), target.Path, limiter.For(req))
			var mountErr *mountError
			switch {
			case errors.As(err, &mountErr):
				serveMount(w, req, handler, mountErr, target.Rest)
				return
			case errors.Is(err, errNotAvailable):
				http.Error(w, "Not available.", http.StatusServiceUnavailable)
				return
			case errors.Is(err, errRemote):
				w.Header().Set("Retry-After", "1")
				http.Error(w, "Not found on this shard", http.StatusTooManyRequests)
				return
			case errors.Is(err, errNotFound):
				writeError(w, req, serializer, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), target.Path.String()))
				return
			case err != nil:
				// The client may be anonymous: internal errors are logged and not returned.
				klog.FromContext(req.Context()).Error(err, "Failed to resolve a workspace path", "path", target.Path)
				writeError(w, req, serializer, apierrors.NewInternalError(errors.New("the workspace path cannot be resolved now")))
				return
			}
		}
		scoped := withClusterPath(req, cluster, target.Rest)
		if IsShardLevel(target.Rest) && (target.Rest != usage.Path || cluster.IsWildcard()) { // package usage serves its path in single logical clusters
			shardLevelHandler.ServeHTTP(w, scoped)
			return
		}
		handler.ServeHTTP(w, scoped)
	})
}

// withClusterPath returns the request with a logical cluster and a path in it. It shares the headers of the original, which is
// not used afterwards.
func withClusterPath(req *http.Request, cluster logicalcluster.Name, path string) *http.Request {
	scoped, target := req.WithContext(logicalcluster.With(req.Context(), cluster)), *req.URL
	target.Path, target.RawPath = path, ""
	scoped.URL = &target
	return scoped
}

// serveMount serves a request to a mount.
func serveMount(w http.ResponseWriter, req *http.Request, handler http.Handler, mountErr *mountError, rest string) {
	_, escaped, _ := strings.Cut(strings.TrimPrefix(req.URL.EscapedPath(), "/clusters/"), "/")
	target, err := mount.Target(mountErr.url, "/"+escaped)
	if err != nil {
		http.Error(w, "The path cannot be followed into the mounted workspace.", http.StatusBadRequest)
		return
	}
	scoped := req.Clone(mount.WithTarget(logicalcluster.With(req.Context(), mountErr.cluster), target))
	scoped.URL.Path, scoped.URL.RawPath = rest, ""
	handler.ServeHTTP(w, scoped)
}

// shardLevelPaths are the endpoints that expose the whole process, hence all tenants. They are not available below a logical
// cluster, whose admin may access every path there.
var shardLevelPaths = []string{"/metrics", "/debug", "/logs", "/configz", "/statusz", "/flagz"}

// IsShardLevel reports whether a path is one of these endpoints, or below one.
func IsShardLevel(path string) bool {
	for _, prefix := range shardLevelPaths {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

func writeError(w http.ResponseWriter, req *http.Request, serializer runtime.NegotiatedSerializer, err error) {
	responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
}
