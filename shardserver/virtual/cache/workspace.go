// Package cache serves an embedded cache server as the virtual workspace /services/cache, so that the one handler chain of
// the shard authenticates, audits and limits its requests. It does not import the cache server: binaries pass one in.
package cache

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// NewWorkspace returns the virtual workspace that serves the cache server.
func NewWorkspace(server embedded.Server) *virtual.Workspace {
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

type scopeAuthorizer struct{ server embedded.Server }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a scopeAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.server.Authorize(ctx, scopeFrom(ctx), attributes)
}
