// Package scope parses the scope of a cache URL, "/shards/<shard>/clusters/<cluster>", and carries it in the context of
// a request. It does not authorize.
package scope

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// AllShards stands for every shard.
const AllShards = "*"

var shardName = regexp.MustCompile(`^[a-z0-9-:]{0,61}$`)

// healthPaths are served in every scope, because clients probe a cache by its base URL; metrics are not: they would not
// be limited to the scope.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// ErrShardRequired is returned for a path without a shard.
var ErrShardRequired = errors.New("a shard name is required")

// Scope selects the objects of a request.
type Scope struct {
	// Shard is the name of a shard, or AllShards.
	Shard string
	// Cluster is a logical cluster, or logicalcluster.Wildcard.
	Cluster logicalcluster.Name
}

// IsWildcard returns whether the scope has more than one logical cluster of one shard.
func (s Scope) IsWildcard() bool { return s.Shard == AllShards || s.Cluster.IsWildcard() }

// IsHealth returns whether a path without scope is a health check of the process.
func IsHealth(path string) bool {
	for _, prefix := range healthPaths {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// IsMetrics returns whether a path without scope is that of the metrics of the process.
func IsMetrics(path string) bool { return path == "/metrics" || strings.HasPrefix(path, "/metrics/") }

// Parse splits a URL path into the scope and the path behind it, which begins with "/". The leading client.Prefix is
// optional. Paths of the process have no scope; for other paths without one it returns ErrShardRequired.
func Parse(path string) (Scope, string, error) {
	if path == client.Prefix || strings.HasPrefix(path, client.Prefix+"/") {
		path = strings.TrimPrefix(path, client.Prefix)
	}
	rest, ok := strings.CutPrefix(path, "/shards/")
	if !ok {
		return Scope{}, path, ErrShardRequired
	}
	shard, rest, _ := strings.Cut(rest, "/")
	switch {
	case shard == "":
		return Scope{}, path, ErrShardRequired
	case shard != AllShards && !shardName.MatchString(shard):
		return Scope{}, path, fmt.Errorf("invalid shard %q: want %q or %s", shard, AllShards, shardName)
	}
	parsed := Scope{Shard: shard, Cluster: logicalcluster.Wildcard}
	after, ok := strings.CutPrefix(rest, "clusters/")
	if !ok {
		return parsed, "/" + rest, nil
	}
	cluster, after, _ := strings.Cut(after, "/")
	if cluster != logicalcluster.Wildcard.String() {
		var err error
		if parsed.Cluster, err = logicalcluster.ParseName(cluster); err != nil {
			return Scope{}, path, err
		}
	}
	return parsed, "/" + after, nil
}

type contextKey struct{}

// NewContext returns a context of a request with that scope.
func NewContext(ctx context.Context, scope Scope) context.Context {
	return context.WithValue(ctx, contextKey{}, scope)
}

// FromContext returns the scope of a request, and whether it has one.
func FromContext(ctx context.Context) (Scope, bool) {
	scope, ok := ctx.Value(contextKey{}).(Scope)
	return scope, ok
}

// WithScope parses the scope of every request and passes on the Kubernetes path behind it. It rejects invalid requests
// with onError.
func WithScope(handler http.Handler, onError func(w http.ResponseWriter, req *http.Request, code int, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		scope, path, err := Parse(req.URL.Path)
		switch {
		case errors.Is(err, ErrShardRequired) && isProcessPath(path):
			handler.ServeHTTP(w, withPath(req, path))
		case err != nil:
			onError(w, req, http.StatusBadRequest, err)
		case IsMetrics(path):
			onError(w, req, http.StatusNotImplemented, errors.New("shard-level endpoint not available at shard or workspace scope"))
		default:
			handler.ServeHTTP(w, withPath(req.WithContext(NewContext(req.Context(), scope)), path))
		}
	})
}

// isProcessPath returns whether a path without a scope is an endpoint of the process.
func isProcessPath(path string) bool {
	return IsHealth(path) || IsMetrics(path) || path == "/version" || strings.HasPrefix(path, "/debug/")
}

func withPath(req *http.Request, path string) *http.Request {
	if req.URL.Path == path {
		return req
	}
	stripped := *req
	address := *req.URL
	address.Path, address.RawPath = path, ""
	stripped.URL = &address
	return &stripped
}
