// Package cache serves an embedded cache server as the virtual workspace /services/cache, so that the one handler chain of
// the shard authenticates, audits and limits its requests. It does not import the cache server: binaries pass one in.
package cache

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Server is a cache server without a listener and a handler chain of its own.
type Server interface {
	// ServeHTTP answers requests for full paths, "/services/cache/...", of the user in their context.
	http.Handler
	// Split divides the part of a path after "/services/cache" into the scope (whose objects are requested) and the
	// Kubernetes path. The scope of an invalid path is empty.
	Split(path string) (scope, rest string)
	// Authorize decides about a request to the Kubernetes path in a scope.
	Authorize(ctx context.Context, scope string, attributes authorizer.Attributes) (authorizer.Decision, string, error)
	// Run works in the background until the context ends.
	Run(ctx context.Context)
	// Close releases storage. It is called after everything else has ended.
	Close()
}

// Config is what a shard passes to its embedded cache server.
type Config struct {
	Transport   storagebackend.TransportConfig
	Prefix      string
	Transformer func(schema.GroupResource) value.Transformer
	MinWatch    time.Duration
	MaxBody     int64
	AlwaysAllow []string
	// MaxObjects is the number of objects that one shard may have in the cache; 0 means no limit.
	MaxObjects int64
}

// NewServerFunc creates the embedded cache server of a shard.
type NewServerFunc func(ctx context.Context, config Config) (Server, error)

// NewWorkspace returns the virtual workspace that serves the cache server.
func NewWorkspace(server Server) *virtual.Workspace {
	return &virtual.Workspace{
		Name:             strings.TrimPrefix(cacheclient.Prefix, virtual.Prefix),
		AllowsIdentities: true,
		Resolve: func(path string) (virtual.Request, bool) {
			scope, rest := server.Split("/" + path)
			// The path of an invalid request stays whole: the cache server explains what is wrong with it.
			return virtual.Request{Owner: slices.DeleteFunc(strings.Split(scope, "/"), func(s string) bool { return s == "" }), Path: rest}, true
		},
		Authorizer: scopeAuthorizer{server},
		Handler: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				cloned := req.Clone(req.Context())
				cloned.URL.Path, cloned.URL.RawPath = cacheclient.Prefix+scopeFrom(req.Context())+req.URL.Path, ""
				server.ServeHTTP(w, cloned)
			})
		},
	}
}

// scopeFrom returns the scope that Server.Split removed from the path of the request.
func scopeFrom(ctx context.Context) string {
	request, _ := virtual.From(ctx)
	if len(request.Owner) == 0 {
		return ""
	}
	return "/" + strings.Join(request.Owner, "/")
}

type scopeAuthorizer struct{ server Server }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a scopeAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.server.Authorize(ctx, scopeFrom(ctx), attributes)
}
