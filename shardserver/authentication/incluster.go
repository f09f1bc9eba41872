package authentication

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ShardedRequestHeader marks requests of clients that address logical clusters: their path is not rewritten.
const ShardedRequestHeader = "X-Kubernetes-Sharded-Request"

// WithInClusterRewrite rewrites requests of stock in-cluster clients, which are configured with a host and a service
// account token only, to the logical cluster of that token. It must run before every filter that reads the path; the
// token is verified later, like any other.
func WithInClusterRewrite(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if cluster, ok := clusterFromToken(req); ok {
			req = rewriteToCluster(req, cluster)
		}
		handler.ServeHTTP(w, req)
	})
}

// shardPaths are paths with a meaning outside of logical clusters. They are not rewritten, because service accounts
// scrape and probe them, too.
var shardPaths = []string{"/metrics", "/healthz", "/livez", "/readyz"}

func clusterFromToken(req *http.Request) (logicalcluster.Name, bool) {
	path := req.URL.Path
	if strings.HasPrefix(path, "/clusters/") || strings.HasPrefix(path, "/services/") || len(req.Header.Values(ShardedRequestHeader)) > 0 {
		return logicalcluster.Name{}, false
	}
	for _, prefix := range shardPaths {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return logicalcluster.Name{}, false
		}
	}
	scheme, token, ok := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return logicalcluster.Name{}, false
	}
	return serviceaccounttokens.ClusterClaim(strings.TrimSpace(token))
}

func rewriteToCluster(req *http.Request, cluster logicalcluster.Name) *http.Request {
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
