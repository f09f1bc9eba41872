package security_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// Groups that the servers of an installation use among themselves.
const (
	shardGroup = "system:kcp:shard"
	cacheGroup = "system:kcp:cache"
)

// cacheUser is a client identity of a cache server.
type cacheUser struct {
	*testUser
	// canRead reports whether the identity may read everything. writes names the shards whose objects it may write:
	// none, one, or all ("*").
	canRead       bool
	writableShard string
	header        http.Header
	// unauthenticated marks identities without a certificate that the server accepts. The server closes their
	// connections, so each request pays for a new one.
	unauthenticated bool
}

// cacheUsers returns users and servers of all kinds, with what a cache server permits them.
func (e *env) cacheUsers(t *testing.T) []cacheUser {
	named := func(name string, groups ...string) *testUser {
		p := e.newCertificateUser(t, name, groups...)
		p.name = fmt.Sprintf("%q in %q", name, groups)
		return p
	}
	alpha, proxies := named(shardGroup+":alpha", shardGroup), e.proxyCertificate(t, proxyName)
	proxy := e.newUser(t, "the front proxy", &proxies)
	foreign := shardtesting.NewCA(t, "foreign")
	cert, key := foreign.Issue(t, shardGroup+":beta", shardGroup, "system:masters")
	wrong := loadCertificate(t, cert, key)
	remote := http.Header{"X-Remote-User": {shardGroup + ":beta"}, "X-Remote-Group": {shardGroup, cacheGroup, "system:masters"}}
	impersonate := func(user string, groups ...string) http.Header {
		return http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups}
	}
	return []cacheUser{
		{testUser: e.masters, canRead: true, writableShard: "*"},
		{testUser: alpha, canRead: true, writableShard: "alpha"},
		{testUser: named("system:kcp:virtual-workspace:x", shardGroup), canRead: true},
		{testUser: named(shardGroup, shardGroup), canRead: true},
		{testUser: named(shardGroup+":", shardGroup), canRead: true},
		{testUser: named(cacheGroup+":europe", cacheGroup), canRead: true, writableShard: "*"},
		{testUser: named(cacheGroup+":", cacheGroup)},
		{testUser: named("europe", cacheGroup)},
		{testUser: named(cacheGroup + ":europe")},
		{testUser: named(shardGroup + ":beta")},
		{testUser: named(shardGroup+":beta", shardGroup+":", "system:kcp:shards", shardGroup+" ")},
		{testUser: named("x", "system:kcp:admin")},
		{testUser: named("x", "system:kcp:logical-cluster-admin", "system:kcp:external-logical-cluster-admin", "system:kcp:tenancy:workspace-bootstrapper")},
		{testUser: e.anonymous, unauthenticated: true}, {testUser: e.unrelatedUser}, {testUser: e.adminA}, {testUser: e.serviceAccount, unauthenticated: true},
		{testUser: e.anonymous, header: remote, unauthenticated: true}, {testUser: e.adminA, header: remote},
		{testUser: proxy, header: remote, unauthenticated: true}, {testUser: proxy, unauthenticated: true},
		{testUser: e.newUser(t, "a shard of another certificate authority", &wrong), unauthenticated: true},
		{testUser: alpha, header: impersonate(shardGroup+":beta", shardGroup)},
		{testUser: alpha, header: impersonate(shardGroup+":alpha", shardGroup, "system:masters")},
		{testUser: named(cacheGroup+":asia", cacheGroup), header: impersonate("x", "system:masters")},
	}
}

// cache is a cache server at its URL.
type cache struct {
	base string
	a, b string // logical clusters; their content does not matter
}

// cachedResourcePaths returns paths of resources of a cache: all built-in ones, and one that a user has cached.
func cachedResourcePaths() []string {
	paths := []string{"/api/v1/configmaps:0123456789abcdef"}
	for _, resource := range cacheclient.Resources() {
		paths = append(paths, fmt.Sprintf("/apis/%s/%s/%s", resource.Group, resource.Version, resource.Resource))
	}
	slices.Sort(paths)
	return paths
}

// testCacheRoutes requests every resource of a cache with every verb, as every identity, for every shard.
func (e *env) testCacheRoutes(t *testing.T, c cache) {
	scopes := map[string]string{
		"/shards/alpha/clusters/" + c.a: "alpha", "/shards/beta/clusters/" + c.b: "beta", "/shards/root/clusters/root": "root", "/shards/beta/clusters/root": "beta",
		"/shards/*/clusters/*": "*", "/shards/beta/clusters/*": "beta", "/shards/new/clusters/" + c.a: "new",
	}
	var all errgroup.Group
	all.SetLimit(16)
	for _, caller := range e.cacheUsers(t) {
		sampling := 1 // sampling: one resource in how many
		if !caller.canRead {
			sampling = 5
		}
		if c.base != e.cacheURL {
			sampling *= 3
		}
		for scope, shard := range scopes {
			if caller.unauthenticated && shard != "beta" {
				continue
			}
			all.Go(func() error {
				for i, path := range cachedResourcePaths() {
					if i%sampling != 0 {
						continue
					}
					e.testCacheRoute(t, c, caller, scope, shard, path)
				}
				return nil
			})
		}
	}
	must(t, all.Wait())
}

// testCacheRoute requests one resource of one shard with every verb. Permitted writes are not sent.
func (e *env) testCacheRoute(t *testing.T, c cache, caller cacheUser, scope, shard, path string) {
	body := `{"apiVersion":"v1","kind":"X","metadata":{"name":"evil"}}`
	for _, r := range []request{
		{path: ""}, {path: "/tenancy.kcp.io"}, {path: "?watch=1&timeoutSeconds=0&resourceVersion=1"},
		{method: http.MethodPost, path: "", body: body}, {method: http.MethodPut, path: "/evil/status", body: body}, {method: http.MethodPut, path: "/evil", body: body}, {method: http.MethodPatch, path: "/evil", body: `{}`, contentType: mergePatchType},
		{method: http.MethodDelete, path: "/tenancy.kcp.io"}, {method: http.MethodDelete, path: ""},
	} {
		reads := r.method == ""
		if strings.HasPrefix(r.path, "?watch") && caller.canRead {
			continue // permitted, and slow
		}
		permitted := caller.canRead
		if !reads {
			permitted = caller.writableShard == "*" || caller.writableShard != "" && caller.writableShard == shard
			r.path += "?dryRun=All"
		}
		r.path, r.header = cacheclient.Prefix+scope+path+r.path, caller.header
		got := e.send(t, caller.testUser, c.base, r)
		refused := got.status == http.StatusForbidden || got.status == http.StatusUnauthorized
		if refused == permitted || got.status == 0 || got.status >= 500 {
			t.Errorf("%s with %v: %s %s: %d %.300s", caller.name, caller.header, r.method, r.path, got.status, got.body)
		}
	}
}

// testCachePaths attempts, as a shard and as an identity with read access only, to exceed their permissions by the form
// of the URL.
func (e *env) testCachePaths(t *testing.T, c cache) {
	const exports = "/apis/apis.kcp.io/v1alpha2/apiexports"
	victim := cacheclient.Prefix + "/shards/root/clusters/root" + exports
	before := e.send(t, e.masters, c.base, request{path: victim})
	if before.status != http.StatusOK || !strings.Contains(before.body, `"tenancy.kcp.io"`) {
		t.Fatalf("%d %.300s", before.status, before.body)
	}
	own := "/shards/alpha/clusters/" + c.a
	prefixes := []string{
		"/services/cache" + own + "/../../../root/clusters/root", "/services/cache" + own + "/%2e%2e/%2e%2e/%2e%2e/root/clusters/root", "/services/cache/shards/alpha%2f..%2froot/clusters/root", "/services/cache/shards/alpha/clusters/" + c.a + "%2f..%2f..%2f..%2froot%2fclusters%2froot",
		"/services/cache/shards/alpha/shards/root/clusters/root", "/services/cache" + own + "/shards/root/clusters/root", "/services/cache" + own + "/services/cache/shards/root/clusters/root", "/services/cache//shards/root/clusters/root", "/services/cache/shards//root/clusters/root",
		"/services/cache/shards/alpha,root/clusters/root", "/services/cache/shards/*/clusters/root", "/services/cache/shards/%2a/clusters/root", "/services/cache/shards/ROOT/clusters/root", "/services/cache/shards/root%00/clusters/root", "/services/cache/shards/root/clusters/root%00",
		"/services/cache/shards/root", "/services/cache/shards/root/", "/services/cache/clusters/root", "/services/cache", "/services/cache/shards/alpha/clusters/..", "/services/cache/shards/../clusters/root", "/shards/root/clusters/root", "/./shards/root/clusters/root", "/services/%63ache/shards/root/clusters/root",
	}
	suffixes := []string{exports, exports + "/tenancy.kcp.io", exports + "/tenancy.kcp.io/status", "/apis/apis.kcp.io/v1alpha2/namespaces/root/apiexports/tenancy.kcp.io", exports + "/..%2f..%2froot%2ftenancy.kcp.io", exports + ":customresources/tenancy.kcp.io", exports + "%3acustomresources/tenancy.kcp.io"}
	body := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"tenancy.kcp.io","annotations":{"kcp.io/shard":"root","kcp.io/cluster":"root"}},"status":{"identityHash":"evil"}}`
	users := e.cacheUsers(t)
	var all errgroup.Group
	all.SetLimit(16)
	for _, caller := range users[1:] { // without system:masters
		if caller.writableShard == "*" || caller.unauthenticated {
			continue // a downstream cache writes for all its shards
		}
		for _, prefix := range prefixes {
			all.Go(func() error {
				for _, suffix := range suffixes {
					for _, r := range []request{
						{method: http.MethodPost, body: body}, {method: http.MethodPut, body: body}, {method: http.MethodPatch, body: body, contentType: mergePatchType}, {method: http.MethodDelete},
					} {
						r.path, r.header = prefix+suffix, caller.header
						if got := e.send(t, caller.testUser, c.base, r); got.status < 400 || got.status >= 500 && got.status != http.StatusNotImplemented && !strings.Contains(got.body, "invalid key") {
							t.Errorf("%s with %v: %s %s: %d %.300s", caller.name, caller.header, r.method, r.path, got.status, got.body)
						}
					}
				}
				return nil
			})
		}
		for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/flags/v", "/services/cache/metrics", "/services/cache/shards/alpha/clusters/" + c.a + "/metrics", "/services/cache/shards/alpha/clusters/" + c.a + "/debug/pprof/", "/logs", "/configz", "/statusz", "/flagz"} {
			if got := e.send(t, caller.testUser, c.base, request{path: path, header: caller.header}); got.status == http.StatusOK && (c.base == e.cacheURL || strings.HasPrefix(path, cacheclient.Prefix)) {
				t.Errorf("%s gets %s: %.100s", caller.name, path, got.body)
			}
		}
	}
	must(t, all.Wait())
	if after := e.send(t, e.masters, c.base, request{path: victim}); withoutVersion(after.body) != withoutVersion(before.body) {
		t.Errorf("the exports of root changed: %.1000s\nbefore: %.1000s", after.body, before.body)
	}
}

var resourceVersionPattern = regexp.MustCompile(`"resourceVersion":"\d+"`)

// withoutVersion returns a list without its resourceVersion.
func withoutVersion(list string) string { return resourceVersionPattern.ReplaceAllString(list, "") }

// testCacheMetadata publishes, as a shard and under its own name, objects whose metadata claims another shard. The
// cache server must overwrite these claims.
func (e *env) testCacheMetadata(t *testing.T, c cache) {
	// gamma does not run: a running shard prunes what it has not published.
	gamma := e.newCertificateUser(t, shardGroup+":gamma", shardGroup)
	const forged = `"annotations":{"kcp.io/shard":"root","kcp.io/cluster":"root","kcp.io/path":"root","cache.kcp.io/via":"x","cache.kcp.io/down":"x"},"labels":{"kcp.io/shard":"root"}`
	at := cacheclient.Prefix + "/shards/gamma/clusters/" + c.a + "/apis/apis.kcp.io/v1alpha2/apiexports"
	whole := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"forged",` + forged + `},"spec":{}}`
	defer e.send(t, e.masters, c.base, request{method: http.MethodDelete, path: at + "/forged"})
	for _, r := range []request{
		{method: http.MethodPost, path: at, body: whole},
		{method: http.MethodPatch, path: at + "/forged", body: `{"metadata":{` + forged + `}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: at + "/forged", body: `{"metadata":{"annotations":{"kcp.io/shard":null,"kcp.io/cluster":null}}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: at + "/forged", body: `[{"op":"replace","path":"/metadata/annotations","value":{"kcp.io/shard":"root"}}]`, contentType: "application/json-patch+json"},
	} {
		got := e.send(t, gamma, c.base, r)
		if got.status >= 300 {
			t.Errorf("%s: %d %.300s", r.method, got.status, got.body)
		}
		for _, path := range []string{at, cacheclient.Prefix + "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"} {
			list, _ := e.send(t, e.masters, c.base, request{path: path}).object(t)["items"].([]any)
			for _, item := range list {
				metadata := item.(map[string]any)["metadata"].(map[string]any)
				annotations, _ := metadata["annotations"].(map[string]any)
				if metadata["name"] == "forged" && (annotations["kcp.io/shard"] != "gamma" || annotations["kcp.io/cluster"] != c.a) {
					t.Errorf("after %s %s: %v", r.method, r.body, metadata)
				}
			}
		}
	}
}

// testCaches attacks the cache server of an installation.
func testCaches(t *testing.T, s *env) { s.testCache(t, cache{base: s.cacheURL, a: s.a, b: s.b}) }

func (e *env) testCache(t *testing.T, c cache) {
	t.Run("identities and routes", func(t *testing.T) { e.testCacheRoutes(t, c) })
	t.Run("ambiguous paths", func(t *testing.T) { e.testCachePaths(t, c) })
	t.Run("forged shard annotations", func(t *testing.T) { e.testCacheMetadata(t, c) })
}

// TestEmbeddedCache attacks the cache server embedded in a root shard that runs without an external one.
func TestEmbeddedCache(t *testing.T) {
	s := newEnvWith(t, placement{installation.Root, installation.Root}, sharded.Options{Shards: []string{installation.Root}, NoCache: true})
	s.testCache(t, cache{base: s.shardURL, a: s.a, b: s.b})
	t.Run("from outside", s.testCacheFromOutside)
}
