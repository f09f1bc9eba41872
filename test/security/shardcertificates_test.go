package security_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/atoll-dev/atoll/test/installation"
)

const shardsPath = "/apis/core.kcp.io/v1alpha1/shards"

// testShardCertificate checks what a shard may do at other shards with its certificate: read its own Shard object, and
// get exports of root one by one. Every shard answers all other requests as those of any user without permissions.
func testShardCertificate(t *testing.T, s *env) {
	beta := s.newCertificateUser(t, shardGroup+":beta", shardGroup)
	wrongName := s.newCertificateUser(t, "beta", shardGroup)
	ungrouped := s.newCertificateUser(t, shardGroup+":beta")
	ungrouped.name += ", not in the group"
	root := s.layout.URL(installation.Root)
	allowed := func(base, cluster string, r request) bool {
		if base != root || cluster != "root" {
			return false
		}
		switch path, _, _ := strings.Cut(r.path, "?"); path {
		case shardsPath + "/beta":
			return r.method == http.MethodGet || r.method == http.MethodPut || r.method == http.MethodPatch
		default:
			_, name, _ := cutLast(path, "/apiexports/")
			return r.method == http.MethodGet && name != "" && !strings.Contains(name, "/")
		}
	}
	var all errgroup.Group
	all.SetLimit(16)
	for _, place := range []struct{ base, cluster string }{{root, "root"}, {s.shardURL, "root"}, {s.proxyURL, "root"}, {s.shardURL, s.a}, {root, "system:admin"}, {s.shardURL, "system:shard"}, {root, "*"}} {
		base, cluster := place.base, place.cluster
		callers := []*testUser{beta}
		if base == root && cluster == "root" {
			callers = []*testUser{beta, wrongName, ungrouped}
		}
		for _, r := range s.resourceRequests(t, cluster, len(callers) > 1) {
			all.Go(func() error {
				whole := r
				whole.path = "/clusters/" + cluster + r.path
				want := s.send(t, s.unrelatedUser, base, whole)
				for _, caller := range callers {
					got := s.send(t, caller, base, whole)
					if caller == beta && allowed(base, cluster, r) {
						if got.status == http.StatusForbidden {
							t.Errorf("a shard is refused its own object: %s %s: %d %.300s", r.method, r.path, got.status, got.body)
						}
						continue
					}
					if caller == wrongName && allowed(base, cluster, r) && !strings.HasPrefix(r.path, shardsPath) {
						continue // the group is sufficient to read exports
					}
					if got.status != want.status {
						t.Errorf("%s gets %d %.200s for %s %s of %s at the %s, a user without permissions %d", caller.name, got.status, got.body, r.method, r.path, cluster, s.serverName(base), want.status)
					}
				}
				return nil
			})
		}
	}
	must(t, all.Wait())
	s.testShardImpersonation(t, beta)
}

// resourceRequests returns requests for every resource of a logical cluster: with all objects of well-known names and
// their subresources, or with one. Those that the shard permits change nothing.
func (e *env) resourceRequests(t *testing.T, cluster string, all bool) []request {
	t.Helper()
	names, subresources := []string{"beta"}, []string{""}
	if all {
		names, subresources = []string{"beta", "tenancy.kcp.io"}, []string{"", "/status"}
	}
	from := cluster
	if strings.ContainsAny(cluster, "*:") || strings.HasPrefix(cluster, "0123") {
		from = e.a
	}
	var paths []string
	for _, resource := range e.listResources(t, e.masters, from) {
		paths = append(paths, resource.path)
	}
	if cluster == "root" {
		paths = append(paths, shardsPath)
	}
	var routes []request
	for _, path := range paths {
		for _, r := range []request{{}, {path: "?watch=1&timeoutSeconds=1&resourceVersion=1"}, {method: http.MethodPost, path: "?dryRun=All", body: "{}"}, {method: http.MethodDelete, path: "?dryRun=All"}} {
			routes = append(routes, request{r.method, path + r.path, r.body, "", nil})
		}
		for _, name := range names {
			for _, sub := range subresources {
				at := path + "/" + name + sub
				routes = append(routes, request{http.MethodGet, at, "", "", nil}, request{http.MethodPut, at + "?dryRun=All", "{}", "", nil}, request{http.MethodPatch, at + "?dryRun=All", "{}", mergePatchType, nil},
					request{http.MethodPatch, at + "?dryRun=All&fieldManager=x&force=true", "{}", applyPatchType, nil}, request{http.MethodDelete, at + "?dryRun=All", "", "", nil})
			}
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/logs", "/configz", "/services/cache/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/shards"} {
		routes = append(routes, request{http.MethodGet, path, "", "", nil})
	}
	return routes
}

// testShardImpersonation has a shard impersonate others, and request more than its permissions through variant
// spellings.
func (e *env) testShardImpersonation(t *testing.T, beta *testUser) {
	root := e.layout.URL(installation.Root)
	impersonate := func(user string, groups ...string) http.Header {
		return http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups}
	}
	evil := `{"spec":{"baseURL":"https://evil.example"}}`
	for i, r := range []request{
		{path: shardsPath + "/alpha", header: impersonate(shardGroup+":alpha", shardGroup)},
		{path: shardsPath + "/alpha", header: impersonate("x", "system:masters")},
		{path: shardsPath + "/alpha", header: impersonate("kcp-admin", "system:kcp:admin")},
		{path: "/api/v1/secrets", header: impersonate("system:apiserver")},
		{path: shardsPath + "/alpha"}, {path: shardsPath}, {path: shardsPath + "?fieldSelector=metadata.name=beta"}, {path: shardsPath + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=beta"},
		{path: shardsPath + "/beta/../alpha"}, {path: shardsPath + "/beta%2f..%2falpha"}, {path: shardsPath + ":customresources/alpha"},
		{path: exportsPath}, {path: exportsPath + "?watch=1&timeoutSeconds=1&resourceVersion=1"}, {path: exportsPath + "/tenancy.kcp.io/status"},
		{method: http.MethodPatch, path: shardsPath + "/root", body: evil, contentType: mergePatchType},
		{method: http.MethodPatch, path: shardsPath + "/beta/status", body: `{"status":{"capacity":{"logicalclusters":"1"}}}`, contentType: mergePatchType},
		{method: http.MethodPatch, path: shardsPath + "/beta%00", body: evil, contentType: mergePatchType},
		{method: http.MethodPut, path: shardsPath + "/beta", body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"alpha"},"spec":{"baseURL":"https://evil.example"}}`},
		{method: http.MethodPost, path: shardsPath, body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"gamma"},"spec":{"baseURL":"https://evil.example"}}`},
		{method: http.MethodPatch, path: shardsPath + "/gamma?fieldManager=x", body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"gamma"},"spec":{"baseURL":"https://evil.example"}}`, contentType: applyPatchType},
		{method: http.MethodDelete, path: shardsPath + "/beta"}, {method: http.MethodDelete, path: shardsPath},
		{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"bob","nonResourceAttributes":{"path":"/","verb":"access"}}}`, header: http.Header{"X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}}},
	} {
		whole := r
		whole.path = "/clusters/root" + r.path
		if got := e.send(t, beta, root, whole); got.status < 400 || got.status >= 500 {
			t.Errorf("%d: %s %s with %v: %d %.300s", i, r.method, r.path, r.header, got.status, got.body)
		}
	}
	for _, path := range []string{shardsPath + "/beta", exportsPath + "/tenancy.kcp.io"} {
		if got := e.send(t, beta, e.proxyURL, request{path: "/clusters/root" + path}); got.status != http.StatusForbidden && got.status != http.StatusNotFound {
			t.Errorf("a shard gets %s through the proxy: %d %.300s", path, got.status, got.body)
		}
	}
}

// testIdentityHeaders sends identity headers to every server: they count only on connections of the front proxy, and
// never give access to endpoints that only the server itself offers.
func testIdentityHeaders(t *testing.T, s *env) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	own, foreign := s.proxyCertificate(t, proxyName), s.proxyCertificate(t, "x")
	trusted, other := s.newUser(t, "the front proxy", &own), s.newUser(t, "another certificate of its authority", &foreign)
	privilegedGroups := []string{"system:masters", shardGroup, cacheGroup, "system:kcp:logical-cluster-admin", "system:kcp:initializer:root:universal", "system:kcp:terminator:x", "tenants"}
	headers := http.Header{"X-Remote-User": {shardGroup + ":beta"}, "X-Remote-Group": privilegedGroups, "X-Remote-Uid": {"1"}, "X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:" + s.b}, "X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}, "X-Kcp-Virtual-Resource-Hops": {"-5"}}
	for _, name := range s.layout.Shards() {
		base := s.layout.URL(name)
		for _, caller := range []*testUser{other, s.anonymous, s.unrelatedUser, s.adminA, s.serviceAccount} {
			for _, path := range []string{confidentialPath, "/api/v1/secrets", shardsPath + "/beta", "/version"} {
				for _, cluster := range []string{s.b, "root", "system:admin", "*"} {
					plain := s.send(t, caller, base, request{path: "/clusters/" + cluster + path})
					got := s.send(t, caller, base, request{path: "/clusters/" + cluster + path, header: headers})
					if got.status != plain.status {
						t.Errorf("%s gets %s of %s at %s by headers: %d %.300s, else %d", caller.name, path, cluster, name, got.status, got.body, plain.status)
					}
				}
			}
		}
		// Identity headers of the front proxy are trusted, without the privileged groups that the proxy never forwards.
		for cluster, path := range map[string]string{"root": shardsPath + "/beta", s.b: confidentialPath, "system:admin": "/api/v1/secrets"} {
			if got := s.send(t, trusted, base, request{path: "/clusters/" + cluster + path, header: headers}); got.status != http.StatusForbidden {
				t.Errorf("the proxy with privileged groups gets %s of %s at %s: %d %.300s", path, cluster, name, got.status, got.body)
			}
		}
		if got := s.send(t, trusted, base, request{path: "/metrics", header: headers}); got.status != http.StatusForbidden {
			t.Errorf("the proxy with privileged groups gets metrics at %s: %d", name, got.status)
		}
	}
	aliceHeaders := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": append([]string{"system:authenticated"}, privilegedGroups...), "X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}}
	got := s.send(t, trusted, s.shardURL, request{method: http.MethodPost, path: "/clusters/" + s.a + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: review, header: aliceHeaders})
	for _, group := range privilegedGroups[:6] {
		if got.status != http.StatusCreated || strings.Contains(got.body, fmt.Sprintf("%q", group)) {
			t.Errorf("the proxy forwards group %s: %d %.600s", group, got.status, got.body)
		}
	}
	if !strings.Contains(got.body, `"tenants"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}
