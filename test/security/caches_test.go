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

// servant is a client identity of a cache server.
type servant struct {
	*person
	// reads reports whether the identity may read everything. writes names the shards whose objects it may write: none,
	// one, or all ("*").
	reads  bool
	writes string
	header http.Header
	// unknown marks identities without a certificate that the server accepts. The server closes their connections, so
	// each request pays for a new one.
	unknown bool
}

// servants returns users and servers of all kinds, with what a cache server permits them.
func (s *site) servants(t *testing.T) []servant {
	named := func(name string, groups ...string) *person {
		p := s.withCertificate(t, name, groups...)
		p.name = fmt.Sprintf("%q in %q", name, groups)
		return p
	}
	alpha, proxies := named(shardGroup+":alpha", shardGroup), s.proxyPair(t, proxyName)
	proxy := s.person(t, "the front proxy", &proxies)
	foreign := shardtesting.NewCA(t, "foreign")
	cert, key := foreign.Issue(t, shardGroup+":beta", shardGroup, "system:masters")
	wrong := loadPair(t, cert, key)
	remote := http.Header{"X-Remote-User": {shardGroup + ":beta"}, "X-Remote-Group": {shardGroup, cacheGroup, "system:masters"}}
	as := func(user string, groups ...string) http.Header {
		return http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups}
	}
	return []servant{
		{person: s.masters, reads: true, writes: "*"},
		{person: alpha, reads: true, writes: "alpha"},
		{person: named("system:kcp:virtual-workspace:x", shardGroup), reads: true},
		{person: named(shardGroup, shardGroup), reads: true},
		{person: named(shardGroup+":", shardGroup), reads: true},
		{person: named(cacheGroup+":europe", cacheGroup), reads: true, writes: "*"},
		{person: named(cacheGroup+":", cacheGroup)},
		{person: named("europe", cacheGroup)},
		{person: named(cacheGroup + ":europe")},
		{person: named(shardGroup + ":beta")},
		{person: named(shardGroup+":beta", shardGroup+":", "system:kcp:shards", shardGroup+" ")},
		{person: named("x", "system:kcp:admin")},
		{person: named("x", "system:kcp:logical-cluster-admin", "system:kcp:external-logical-cluster-admin", "system:kcp:tenancy:workspace-bootstrapper")},
		{person: s.anonymous, unknown: true}, {person: s.stranger}, {person: s.admin}, {person: s.robot, unknown: true},
		{person: s.anonymous, header: remote, unknown: true}, {person: s.admin, header: remote},
		{person: proxy, header: remote, unknown: true}, {person: proxy, unknown: true},
		{person: s.person(t, "a shard of another authority", &wrong), unknown: true},
		{person: alpha, header: as(shardGroup+":beta", shardGroup)},
		{person: alpha, header: as(shardGroup+":alpha", shardGroup, "system:masters")},
		{person: named(cacheGroup+":asia", cacheGroup), header: as("x", "system:masters")},
	}
}

// cache is a cache server at its URL.
type cache struct {
	base string
	a, b string // logical clusters; their content does not matter
}

// storedInCaches returns paths of resources of a cache: all built-in ones, and one that a user has cached.
func storedInCaches() []string {
	paths := []string{"/api/v1/configmaps:0123456789abcdef"}
	for _, resource := range cacheclient.Resources() {
		paths = append(paths, fmt.Sprintf("/apis/%s/%s/%s", resource.Group, resource.Version, resource.Resource))
	}
	slices.Sort(paths)
	return paths
}

// cacheRoutes requests every resource of a cache with every verb, as every identity, for every shard.
func (s *site) cacheRoutes(t *testing.T, c cache) {
	scopes := map[string]string{
		"/shards/alpha/clusters/" + c.a: "alpha", "/shards/beta/clusters/" + c.b: "beta", "/shards/root/clusters/root": "root", "/shards/beta/clusters/root": "beta",
		"/shards/*/clusters/*": "*", "/shards/beta/clusters/*": "beta", "/shards/new/clusters/" + c.a: "new",
	}
	var all errgroup.Group
	all.SetLimit(16)
	for _, who := range s.servants(t) {
		every := 1 // sampling: one resource in how many
		if !who.reads {
			every = 5
		}
		if c.base != s.cache {
			every *= 3
		}
		for scope, shard := range scopes {
			if who.unknown && shard != "beta" {
				continue
			}
			all.Go(func() error {
				for i, path := range storedInCaches() {
					if i%every != 0 {
						continue
					}
					s.oneCacheRoute(t, c, who, scope, shard, path)
				}
				return nil
			})
		}
	}
	must(t, all.Wait())
}

// oneCacheRoute requests one resource of one shard with every verb. Permitted writes are not sent.
func (s *site) oneCacheRoute(t *testing.T, c cache, who servant, scope, shard, path string) {
	body := `{"apiVersion":"v1","kind":"X","metadata":{"name":"evil"}}`
	for _, r := range []request{
		{path: ""}, {path: "/tenancy.kcp.io"}, {path: "?watch=1&timeoutSeconds=0&resourceVersion=1"},
		{method: http.MethodPost, path: "", body: body}, {method: http.MethodPut, path: "/evil/status", body: body}, {method: http.MethodPut, path: "/evil", body: body}, {method: http.MethodPatch, path: "/evil", body: `{}`, contentType: mergePatchType},
		{method: http.MethodDelete, path: "/tenancy.kcp.io"}, {method: http.MethodDelete, path: ""},
	} {
		reads := r.method == ""
		if strings.HasPrefix(r.path, "?watch") && who.reads {
			continue // permitted, and slow
		}
		may := who.reads
		if !reads {
			may = who.writes == "*" || who.writes != "" && who.writes == shard
			r.path += "?dryRun=All"
		}
		r.path, r.header = cacheclient.Prefix+scope+path+r.path, who.header
		got := s.try(t, who.person, c.base, r)
		refused := got.status == http.StatusForbidden || got.status == http.StatusUnauthorized
		if refused == may || got.status == 0 || got.status >= 500 {
			t.Errorf("%s with %v: %s %s: %d %.300s", who.name, who.header, r.method, r.path, got.status, got.body)
		}
	}
}

// cachePaths attempts, as a shard and as an identity with read access only, to exceed their permissions by the form of
// the URL.
func (s *site) cachePaths(t *testing.T, c cache) {
	const exports = "/apis/apis.kcp.io/v1alpha2/apiexports"
	victim := cacheclient.Prefix + "/shards/root/clusters/root" + exports
	before := s.try(t, s.masters, c.base, request{path: victim})
	if before.status != http.StatusOK || !strings.Contains(before.body, `"tenancy.kcp.io"`) {
		t.Fatalf("%d %.300s", before.status, before.body)
	}
	own := "/shards/alpha/clusters/" + c.a
	into := []string{
		"/services/cache" + own + "/../../../root/clusters/root", "/services/cache" + own + "/%2e%2e/%2e%2e/%2e%2e/root/clusters/root", "/services/cache/shards/alpha%2f..%2froot/clusters/root", "/services/cache/shards/alpha/clusters/" + c.a + "%2f..%2f..%2f..%2froot%2fclusters%2froot",
		"/services/cache/shards/alpha/shards/root/clusters/root", "/services/cache" + own + "/shards/root/clusters/root", "/services/cache" + own + "/services/cache/shards/root/clusters/root", "/services/cache//shards/root/clusters/root", "/services/cache/shards//root/clusters/root",
		"/services/cache/shards/alpha,root/clusters/root", "/services/cache/shards/*/clusters/root", "/services/cache/shards/%2a/clusters/root", "/services/cache/shards/ROOT/clusters/root", "/services/cache/shards/root%00/clusters/root", "/services/cache/shards/root/clusters/root%00",
		"/services/cache/shards/root", "/services/cache/shards/root/", "/services/cache/clusters/root", "/services/cache", "/services/cache/shards/alpha/clusters/..", "/services/cache/shards/../clusters/root", "/shards/root/clusters/root", "/./shards/root/clusters/root", "/services/%63ache/shards/root/clusters/root",
	}
	rest := []string{exports, exports + "/tenancy.kcp.io", exports + "/tenancy.kcp.io/status", "/apis/apis.kcp.io/v1alpha2/namespaces/root/apiexports/tenancy.kcp.io", exports + "/..%2f..%2froot%2ftenancy.kcp.io", exports + ":customresources/tenancy.kcp.io", exports + "%3acustomresources/tenancy.kcp.io"}
	body := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"tenancy.kcp.io","annotations":{"kcp.io/shard":"root","kcp.io/cluster":"root"}},"status":{"identityHash":"evil"}}`
	servants := s.servants(t)
	var all errgroup.Group
	all.SetLimit(16)
	for _, who := range servants[1:] { // without system:masters
		if who.writes == "*" || who.unknown {
			continue // a downstream cache writes for all its shards
		}
		for _, prefix := range into {
			all.Go(func() error {
				for _, suffix := range rest {
					for _, r := range []request{
						{method: http.MethodPost, body: body}, {method: http.MethodPut, body: body}, {method: http.MethodPatch, body: body, contentType: mergePatchType}, {method: http.MethodDelete},
					} {
						r.path, r.header = prefix+suffix, who.header
						if got := s.try(t, who.person, c.base, r); got.status < 400 || got.status >= 500 && got.status != http.StatusNotImplemented && !strings.Contains(got.body, "invalid key") {
							t.Errorf("%s with %v: %s %s: %d %.300s", who.name, who.header, r.method, r.path, got.status, got.body)
						}
					}
				}
				return nil
			})
		}
		for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/flags/v", "/services/cache/metrics", "/services/cache/shards/alpha/clusters/" + c.a + "/metrics", "/services/cache/shards/alpha/clusters/" + c.a + "/debug/pprof/", "/logs", "/configz", "/statusz", "/flagz"} {
			if got := s.try(t, who.person, c.base, request{path: path, header: who.header}); got.status == http.StatusOK && (c.base == s.cache || strings.HasPrefix(path, cacheclient.Prefix)) {
				t.Errorf("%s gets %s: %.100s", who.name, path, got.body)
			}
		}
	}
	must(t, all.Wait())
	if after := s.try(t, s.masters, c.base, request{path: victim}); withoutVersion(after.body) != withoutVersion(before.body) {
		t.Errorf("what root has published is %.1000s\nwas %.1000s", after.body, before.body)
	}
}

var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// withoutVersion returns a list without its resourceVersion.
func withoutVersion(list string) string { return version.ReplaceAllString(list, "") }

// cacheStamps publishes, as a shard and under its own name, objects whose metadata claims another shard. The cache
// server must overwrite these claims.
func (s *site) cacheStamps(t *testing.T, c cache) {
	// gamma does not run: a running shard prunes what it has not published.
	gamma := s.withCertificate(t, shardGroup+":gamma", shardGroup)
	const lies = `"annotations":{"kcp.io/shard":"root","kcp.io/cluster":"root","kcp.io/path":"root","cache.kcp.io/via":"x","cache.kcp.io/down":"x"},"labels":{"kcp.io/shard":"root"}`
	at := cacheclient.Prefix + "/shards/gamma/clusters/" + c.a + "/apis/apis.kcp.io/v1alpha2/apiexports"
	whole := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"lying",` + lies + `},"spec":{}}`
	defer s.try(t, s.masters, c.base, request{method: http.MethodDelete, path: at + "/lying"})
	for _, r := range []request{
		{method: http.MethodPost, path: at, body: whole},
		{method: http.MethodPatch, path: at + "/lying", body: `{"metadata":{` + lies + `}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: at + "/lying", body: `{"metadata":{"annotations":{"kcp.io/shard":null,"kcp.io/cluster":null}}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: at + "/lying", body: `[{"op":"replace","path":"/metadata/annotations","value":{"kcp.io/shard":"root"}}]`, contentType: "application/json-patch+json"},
	} {
		got := s.try(t, gamma, c.base, r)
		if got.status >= 300 {
			t.Errorf("%s: %d %.300s", r.method, got.status, got.body)
		}
		for _, path := range []string{at, cacheclient.Prefix + "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"} {
			list, _ := s.try(t, s.masters, c.base, request{path: path}).object(t)["items"].([]any)
			for _, item := range list {
				metadata := item.(map[string]any)["metadata"].(map[string]any)
				annotations, _ := metadata["annotations"].(map[string]any)
				if metadata["name"] == "lying" && (annotations["kcp.io/shard"] != "gamma" || annotations["kcp.io/cluster"] != c.a) {
					t.Errorf("after %s %s: %v", r.method, r.body, metadata)
				}
			}
		}
	}
}

// caches attacks the cache server of an installation.
func caches(t *testing.T, s *site) { s.attackCache(t, cache{base: s.cache, a: s.a, b: s.b}) }

func (s *site) attackCache(t *testing.T, c cache) {
	t.Run("identities and routes", func(t *testing.T) { s.cacheRoutes(t, c) })
	t.Run("odd paths", func(t *testing.T) { s.cachePaths(t, c) })
	t.Run("whose an object is", func(t *testing.T) { s.cacheStamps(t, c) })
}

// TestTheCacheOfARootShardIsForShards attacks the cache server embedded in a root shard that runs without an external
// one.
func TestTheCacheOfARootShardIsForShards(t *testing.T) {
	s := startOn(t, placement{installation.Root, installation.Root}, sharded.Options{Shards: []string{installation.Root}, NoCache: true})
	s.attackCache(t, cache{base: s.shard, a: s.a, b: s.b})
	t.Run("from outside", s.cacheFromOutside)
}
