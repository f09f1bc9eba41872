package shardserver_test

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// alwaysAllowedPaths are the only paths that are served without authorization (wall W7). The list is repeated here, not read from the
// server, so that a new entry is noticed in a review.
var alwaysAllowedPaths = []string{"/livez", "/readyz", "/healthz"}

func isAlwaysAllowed(path string) bool {
	return slices.ContainsFunc(alwaysAllowedPaths, func(o string) bool { return path == o || strings.HasPrefix(path, o+"/") })
}

// TestRoutesRequireAuthorization requests every route of the server, bare and below logical clusters, anonymously and
// with an invalid credential.
func TestRoutesRequireAuthorization(t *testing.T) {
	shard := sharedShard(t)
	host := shard.Masters(t).Host
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()

	type route struct{ method, path string }
	var routes []route
	for _, service := range shard.Server.Generic.Handler.GoRestfulContainer.RegisteredWebServices() {
		for _, r := range service.Routes() {
			path := strings.NewReplacer("{namespace}", "default", "{name}", "x", "{path:*}", "y", "{path}", "y", "{logpath:*}", "z").Replace(r.Path)
			routes = append(routes, route{r.Method, path})
		}
	}
	for _, path := range shard.Server.Generic.Handler.NonGoRestfulMux.ListedPaths() {
		routes = append(routes, route{http.MethodGet, path})
	}
	// Handlers by prefix and paths without a handler.
	for _, path := range []string{"/debug/pprof/heap", "/debug/flags/v", "/openapi/v3/api/v1", "/nothing/here", "/services/apiexport/x", "/services/syncer/root:x/clusters/*/api", "/services/cache/shards/x"} {
		routes = append(routes, route{http.MethodGet, path})
	}
	if len(routes) < 150 {
		t.Fatalf("only %d routes found: the test does not find the routes of the server", len(routes))
	}
	for _, prefix := range []string{"", "/clusters/root", "/clusters/system:admin", "/clusters/system:shard", "/clusters/*", "/clusters/nosuchcluster"} {
		for _, r := range routes {
			for credential, want := range map[string][]int{
				"":                 {http.StatusForbidden, http.StatusNotImplemented},
				"Bearer bad-token": {http.StatusUnauthorized, http.StatusNotImplemented},
			} {
				if isAlwaysAllowed(r.path) {
					want = append(want, http.StatusOK)
				}
				req, err := http.NewRequest(r.method, host+prefix+r.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if credential != "" {
					req.Header.Set("Authorization", credential)
				}
				response, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if !slices.Contains(want, response.StatusCode) {
					t.Errorf("%s %s%s with %q: got %d, want one of %v", r.method, prefix, r.path, credential, response.StatusCode, want)
				}
			}
		}
	}
}

// TestShardLevelEndpointsInWorkspace: the administrator of a workspace has all permissions in it, so
// endpoints that expose the whole process must not exist there at all.
func TestShardLevelEndpointsInWorkspace(t *testing.T) {
	shard := sharedShard(t)
	for _, path := range []string{"/metrics/slis", "/debug/pprof/heap", "/debug/flags/v", "/debug/logicalclusters/objects?name=root", "/debug/logicalclusters/outdated", "/configz"} {
		for _, cluster := range []string{"root", "system:admin"} {
			if got := getStatus(t, shardtesting.At(shard.Masters(t), cluster), path); got != http.StatusNotImplemented {
				t.Errorf("GET /clusters/%s%s as system:masters: got %d, want 501", cluster, path, got)
			}
		}
	}
	if got := getStatus(t, shard.Masters(t), "/metrics"); got != http.StatusOK {
		t.Errorf("GET /metrics as system:masters: got %d, want 200", got)
	}
	const sizes = "/debug/logicalclusters/objects"
	for query, want := range map[string]int{"?name=root&name=nosuchcluster": http.StatusOK, "": http.StatusBadRequest, "?name=a:b": http.StatusBadRequest, "?" + strings.Repeat("name=root&", 101): http.StatusBadRequest} {
		if got := getStatus(t, shard.Masters(t), sizes+query); got != want {
			t.Errorf("GET %s%s as system:masters: got %d, want %d", sizes, query, got, want)
		}
	}
	if got := getStatus(t, shard.User(t), sizes+"?name=root"); got != http.StatusForbidden {
		t.Errorf("GET %s as a plain user: got %d, want 403", sizes, got)
	}
	if got := getStatus(t, shard.User(t), "/metrics"); got != http.StatusForbidden {
		t.Errorf("GET /metrics as a plain user: got %d, want 403", got)
	}
}

func getStatus(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	return get(t, config, path).StatusCode
}
