package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/backend"
	"github.com/atoll-dev/atoll/proxy/identity"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/mapping"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// router holds what the routes of the mapping file share.
type router struct {
	index    *index.Index
	auth     *identity.Authenticator
	respond  responder
	toShards bool // whether the file has an entry for the shards

	// types and issuers are set where workspaces may bring issuers of their own.
	types   *workspacetypes.Catalog
	issuers *issuers.Authenticators
}

// routes returns the handler of the mapping file. Entries match as patterns of http.ServeMux do: the most specific
// wins; without a match the answer is 404.
func (r *router) routes(entries []mapping.Entry, forwarders []*backend.Forwarder) (handler *http.ServeMux, err error) {
	mux := http.NewServeMux()
	register := func(pattern string, h http.Handler) (err error) {
		defer func() {
			if p := recover(); p != nil { // how the mux reports a bad or conflicting pattern
				err = fmt.Errorf("mapping path %q: %v", pattern, p)
			}
		}()
		mux.Handle(pattern, h)
		return nil
	}
	for i, entry := range entries {
		if entry.Shards() {
			if err := register(mapping.ShardsPath, &shardRoute{router: r, forward: forwarders[i]}); err != nil {
				return nil, err
			}
			continue
		}
		base, err := entry.BackendURL()
		if err != nil {
			return nil, fmt.Errorf("mapping path %q: %w", entry.Path, err)
		}
		h := &backendRoute{router: r, name: entry.Path, base: base, forward: forwarders[i]}
		patterns := []string{entry.Pattern() + "/"}
		if entry.Pattern() != "" {
			patterns = append(patterns, entry.Pattern())
		}
		for _, pattern := range patterns {
			if err := register(pattern, h); err != nil {
				return nil, err
			}
		}
	}
	return mux, nil
}

// shardRoute leads to the shard that holds the logical cluster.
type shardRoute struct {
	*router
	forward *backend.Forwarder
}

// ServeHTTP resolves, authenticates, forwards. Resolution comes first: a path that leads nowhere looks the same to
// everybody.
func (r *shardRoute) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	to, err := parseTarget(req.URL)
	if err != nil || climbs(req.URL) {
		r.respond.forbidden(w, req)
		return
	}
	route, verdict := r.index.Load().Lookup(to.path)
	var base *url.URL
	var path, label string
	switch verdict {
	case index.Found:
		if route.Shard.Err != nil {
			klog.V(2).InfoS("Shard cannot be reached", "shard", route.Shard.Name, "err", route.Shard.Err)
			r.respond.internal(w, req, "the base URL of the shard is invalid")
			return
		}
		base, label = route.Shard.BaseURL, route.Shard.Name
		path = route.Cluster.Path().URLPath() + to.rest
	case index.Mounted:
		r.serveMount(w, req, route, to.rest)
		return
	case index.Unavailable:
		unavailable(w)
		return
	case index.Undecided:
		r.respond.undecided(w, req)
		return
	default:
		r.respond.forbidden(w, req)
		return
	}
	r.send(w, req, r.forward, label, base, path, r.ofWorkspace(route))
}

// backendRoute leads to the backend of one entry. A logical cluster in its path is checked, not rewritten.
type backendRoute struct {
	*router
	name    string
	base    *url.URL
	forward *backend.Forwarder
}

func (r *backendRoute) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if climbs(req.URL) {
		r.respond.forbidden(w, req)
		return
	}
	cluster, named := req.PathValue("cluster"), true
	var tokens authenticator.Token
	placed := cluster != ""
	if !placed {
		cluster, named = clusterInside(req.URL)
	}
	if r.toShards && named && cluster != logicalcluster.Wildcard.String() {
		path, err := logicalcluster.ParsePath(cluster)
		if err != nil {
			r.respond.forbidden(w, req)
			return
		}
		route, verdict := r.index.Load().Lookup(path)
		switch verdict {
		case index.Unavailable:
			unavailable(w)
			return
		case index.Undecided:
			r.respond.undecided(w, req)
			return
		case index.NotFound:
			r.respond.forbidden(w, req)
			return
		case index.Found:
			if placed {
				tokens = r.ofWorkspace(route)
			}
		}
	}
	r.send(w, req, r.forward, r.name, r.base, req.URL.EscapedPath(), tokens)
}

// ofWorkspace returns who knows the tokens of the issuers that the type of a workspace brings, or nil if it brings none.
func (r *router) ofWorkspace(route index.Route) authenticator.Token {
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

// send authenticates, by tokens of a workspace's own issuers too if there are any, and forwards.
func (r *router) send(w http.ResponseWriter, req *http.Request, forward *backend.Forwarder, label string, base *url.URL, escaped string, tokens authenticator.Token) {
	u, err := r.auth.Authenticate(req, tokens)
	if err != nil {
		klog.V(2).InfoS("Unable to authenticate the request", "err", err)
		r.respond.unauthorized(w, req)
		return
	}
	to, err := appendPath(base, escaped)
	if err != nil {
		r.respond.forbidden(w, req)
		return
	}
	forward.Forward(w, req, label, to, u)
}
