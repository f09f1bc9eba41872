package authentication

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// ShardedRequestHeader tells that a client knows of logical clusters: its path is taken as it is.
const ShardedRequestHeader = "X-Kubernetes-Sharded-Request"

// WithInClusterRewrite sends a request of a stock in-cluster client, which knows nothing but a host and its service
// account token, to the logical cluster of that token. It belongs in front of everything that reads the path; the
// token is verified later, as any other.
func WithInClusterRewrite(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if cluster, ok := impliedCluster(req); ok {
			req = underCluster(req, cluster)
		}
		handler.ServeHTTP(w, req)
	})
}

// wholeShard are the paths that have a meaning of their own without a logical cluster, and must keep it for service
// accounts, which scrape and probe too.
var wholeShard = []string{"/metrics", "/healthz", "/livez", "/readyz"}

func impliedCluster(req *http.Request) (logicalcluster.Name, bool) {
	path := req.URL.Path
	if strings.HasPrefix(path, "/clusters/") || strings.HasPrefix(path, "/services/") || len(req.Header.Values(ShardedRequestHeader)) > 0 {
		return logicalcluster.Name{}, false
	}
	for _, own := range wholeShard {
		if path == own || strings.HasPrefix(path, own+"/") {
			return logicalcluster.Name{}, false
		}
	}
	scheme, token, ok := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return logicalcluster.Name{}, false
	}
	said, ok := peek(strings.TrimSpace(token))
	if !ok {
		return logicalcluster.Name{}, false
	}
	cluster, err := logicalcluster.ParseName(said.cluster)
	return cluster, err == nil
}

func underCluster(req *http.Request, cluster logicalcluster.Name) *http.Request {
	prefix := "/clusters/" + cluster.String()
	rewritten := new(http.Request)
	*rewritten = *req
	rewritten.URL = new(url.URL)
	*rewritten.URL = *req.URL
	rewritten.URL.Path = prefix + req.URL.Path
	if req.URL.RawPath != "" {
		rewritten.URL.RawPath = prefix + req.URL.RawPath
	}
	rewritten.RequestURI = rewritten.URL.RequestURI()
	return rewritten
}
