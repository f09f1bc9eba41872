// Package loopback provides the clients with which the shard's own components write: through the shard's API, with its
// admission, audit and validation, in the logical cluster of the context. One client serves all logical clusters; there
// is no per-cluster state.
//
// Reads use storage.Reader instead, except where the API is needed (discovery, dry run). Processes other than the shard
// must not use this package: its identity is the shard itself.
package loopback

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Clusterize returns a copy of config whose requests go to the logical cluster of their context (logicalcluster.With).
// A request whose context has none fails before it is sent. The copy has no client-side rate limit: the caller's queue
// limits requests.
func Clusterize(config *rest.Config) *rest.Config { return clusterize(config, nil) }

func clusterize(config *rest.Config, handler *directHandler) *rest.Config {
	clusterized := rest.CopyConfig(config)
	clusterized.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, handler} })
	clusterized.QPS = -1
	clusterized.RateLimiter = nil
	if clusterized.UserAgent == "" { // it is the field manager of writes
		clusterized.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return clusterized
}

// transport sends each request to the logical cluster of its context.
type transport struct {
	next   http.RoundTripper
	direct *directHandler // may be nil
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	cluster, ok := logicalcluster.From(req.Context())
	if !ok {
		return nil, fmt.Errorf("%s %s: no logical cluster in the request's context", req.Method, req.URL.Path)
	}
	scoped := *req // a round tripper must not modify the caller's request
	scoped.URL = clusterURL(req.URL, cluster)
	if handler := t.direct.handlerFor(&scoped); handler != nil {
		return serve(handler, &scoped)
	}
	return t.next.RoundTrip(&scoped)
}

// WrappedRoundTripper lets client-go find the wrapped transport, to close its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func clusterURL(original *url.URL, cluster logicalcluster.Name) *url.URL {
	scoped := *original
	prefix := cluster.Path().URLPath()
	scoped.Path = prefix + original.Path
	if original.RawPath != "" {
		scoped.RawPath = prefix + original.RawPath
	}
	return &scoped
}
