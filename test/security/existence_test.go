package security_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// unknownCluster is the name of a logical cluster that does not exist.
const unknownCluster = "0123456789abcdef"

// testExistence compares, as users without permissions, the responses for names that exist, on this or on another
// shard, and names that do not. The front proxy itself answers requests for what it does not find, with another message
// than a shard: there only the status, and only for authenticated users, reveals nothing (the threat model describes
// the rest).
func testExistence(t *testing.T, s *env) {
	for _, base := range s.serverURLs() {
		for _, caller := range []*testUser{s.unrelatedUser, s.anonymous, s.serviceAccount, s.adminA} {
			for _, path := range []string{confidentialPath, "/api/v1/configmaps", configMapsPath + "/none", "/version", "/api", "/openapi/v3", "/", "/nothing", "/apis/core.kcp.io/v1alpha1/shards", ownClusterPath, "/api/v1/nothing", "/healthz", "/metrics", auditPath} {
				for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
					if base == s.proxyURL && (caller == s.anonymous || path == "/healthz" || path == "/metrics" || path == auditPath) {
						continue
					}
					existing := s.send(t, caller, base, request{method: method, path: "/clusters/" + s.b + path})
					for _, other := range []string{unknownCluster, "system:admin"} {
						s.expectSameResponse(t, base, caller.name+" "+method+" "+path, existing, s.send(t, caller, base, request{method: method, path: "/clusters/" + other + path}), other)
					}
				}
			}
		}
	}
	// At the proxy responses for unknown logical clusters are identical, whatever the form of the name.
	for _, caller := range []*testUser{s.unrelatedUser, s.anonymous} {
		want := s.send(t, caller, s.proxyURL, request{path: "/clusters/" + unknownCluster + "/api/v1/configmaps"})
		for _, cluster := range []string{"*", "root:missing", "root:b:missing", s.b + ":missing", "system:admin", "system:shard", "user:bob", "UPPER", "a b", "%2e%2e"} {
			got := s.send(t, caller, s.proxyURL, request{path: "/clusters/" + cluster + "/api/v1/configmaps"})
			if got.status != http.StatusForbidden || len(got.body) == 0 || !strings.Contains(got.body, "workspace access not permitted") || want.status != got.status {
				t.Errorf("%s requests %s at the proxy: %d %s", caller.name, cluster, got.status, got.body)
			}
		}
	}
}

// expectSameResponse compares the response for b with that for another logical cluster.
func (e *env) expectSameResponse(t *testing.T, base, what string, existing, missing httpResponse, other string) {
	t.Helper()
	if existing.status == 0 || existing.status != missing.status || base != e.proxyURL && strings.ReplaceAll(existing.body, e.b, other) != missing.body {
		t.Errorf("%s at the %s: %d %s\nbut in %s: %d %s", what, e.serverName(base), existing.status, existing.body, other, missing.status, missing.body)
	}
	for name := range existing.header {
		if base != e.proxyURL && !strings.HasPrefix(name, "Audit-Id") && name != "Date" && name != "Content-Length" && existing.header.Get(name) != missing.header.Get(name) {
			t.Errorf("%s at the %s: header %s is %q, but in %s %q", what, e.serverName(base), name, existing.header.Get(name), other, missing.header.Get(name))
		}
	}
}

// testRemoteClusters requests, directly at every shard, logical clusters and paths of all shards with all verbs.
// The shard refuses logical clusters that it does not have, and those that the user may not see, without a hint about
// their shard.
func testRemoteClusters(t *testing.T, s *env) {
	paths := []string{s.a, s.b, unknownCluster, "root:a", "root:b", "root:missing", "root:b:x", "root:a:x", s.b + ":x", unknownCluster + ":x", s.a + ":x", "root:a:root:b"}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"evil"}}`
	for _, name := range s.layout.Shards() {
		base := s.layout.URL(name)
		for _, caller := range []*testUser{s.unrelatedUser, s.anonymous, s.serviceAccount, s.adminA, s.adminB} {
			for _, path := range paths {
				for _, r := range []request{
					{path: confidentialPath}, {path: "/api/v1/configmaps"}, {path: "/api/v1/configmaps?watch=1&timeoutSeconds=1"}, {path: "/api"}, {path: "/version"}, {path: "/openapi/v3"}, {path: "/"},
					{method: http.MethodHead, path: confidentialPath}, {method: http.MethodOptions, path: confidentialPath}, {method: http.MethodPost, path: configMapsPath, body: body}, {method: http.MethodPut, path: confidentialPath, body: body},
					{method: http.MethodPatch, path: confidentialPath, body: "{}", contentType: mergePatchType}, {method: http.MethodPatch, path: confidentialPath + "?fieldManager=x", body: body, contentType: applyPatchType}, {method: http.MethodDelete, path: confidentialPath}, {method: http.MethodDelete, path: configMapsPath},
				} {
					if caller == s.adminB && (path == s.b || path == "root:b") || (caller == s.adminA || caller == s.serviceAccount) && (path == s.a || path == "root:a") {
						continue // permitted at the shard that has it
					}
					r.path = "/clusters/" + path + r.path
					got := s.send(t, caller, base, r)
					switch got.status {
					case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
					default:
						t.Errorf("%s: %s %s at %s: %d %.300s", caller.name, r.method, r.path, name, got.status, got.body)
					}
					response := fmt.Sprint(got.body, got.header)
					for _, secret := range append(s.serverURLs(), s.a, s.b, confidentialData, "alpha", "beta") {
						if strings.Contains(response, secret) && !strings.Contains(r.path, secret) {
							t.Errorf("the response for %s contains %q: %s %s at %s: %d %.300s", caller.name, secret, r.method, r.path, name, got.status, response)
						}
					}
				}
			}
		}
	}
}

// testTiming compares how long shards take to refuse requests for logical clusters that are on another shard, on this
// one, and on none.
func testTiming(t *testing.T, s *env) {
	const rounds = 101
	for _, caller := range []*testUser{s.unrelatedUser, s.adminA} {
		for _, name := range s.layout.Shards() {
			base := s.layout.URL(name)
			took := map[string][]time.Duration{}
			for range rounds {
				for _, cluster := range []string{s.b, unknownCluster} {
					began := time.Now()
					s.send(t, caller, base, request{path: "/clusters/" + cluster + "/api/v1/configmaps"})
					took[cluster] = append(took[cluster], time.Since(began))
				}
			}
			median := func(cluster string) time.Duration {
				slices.Sort(took[cluster])
				return took[cluster][rounds/2]
			}
			existing, missing := median(s.b), median(unknownCluster)
			t.Logf("%s at the %s: %s for a logical cluster that exists, %s for one that does not", caller.name, s.serverName(base), existing, missing)
			if slower, faster := max(existing, missing), min(existing, missing); slower > 3*faster && slower > faster+5*time.Millisecond {
				t.Errorf("%s at the %s: %s for a logical cluster that exists, %s for one that does not", caller.name, s.serverName(base), existing, missing)
			}
		}
	}
}

// testProxyHeaders sends all spellings of identity headers through the proxy and reads from the shard which user it
// authenticated.
func testProxyHeaders(t *testing.T, s *env) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	selfReview := func(caller *testUser, h http.Header) httpResponse {
		return s.send(t, caller, s.proxyURL, request{method: http.MethodPost, path: "/clusters/" + s.a + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: review, header: h})
	}
	want := selfReview(s.adminA, nil)
	if want.status != http.StatusCreated || !strings.Contains(want.body, `"username":"alice"`) {
		t.Fatalf("%d %s", want.status, want.body)
	}
	for name, h := range map[string]http.Header{
		"plain":                   {"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"1"}, "X-Remote-Extra-Scopes": {"x"}},
		"mixed case":              {"x-rEmOtE-uSeR": {"bob"}, "x-remote-group": {"system:masters"}},
		"underscores":             {"X_Remote_User": {"bob"}, "X-Remote_Group": {"system:masters"}},
		"hop by hop":              {"Connection": {"X-Remote-User, X-Remote-Group, Authorization"}},
		"hop by hop and present":  {"Connection": {"close, X-Remote-User"}, "X-Remote-User": {"bob"}},
		"scope extra":             {"X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:" + s.b}},
		"warrant extra":           {"X-Remote-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"bob","groups":["system:masters"]}`}},
		"trailer":                 {"Trailer": {"X-Remote-User"}, "X-Remote-User": {"bob"}},
		"sharded request":         {"X-Kubernetes-Sharded-Request": {"true"}, "X-Remote-User": {"bob"}},
		"additional bearer token": {"Authorization": {"Bearer " + s.serviceAccount.token}},
	} {
		caller := s.adminA
		if h.Get("Connection") != "" { // HTTP/2 has no such header
			caller = s.adminA.withHTTP1(t)
		}
		got := selfReview(caller, h)
		if got.status != http.StatusCreated || !strings.HasPrefix(userInfo(got.body), `:{"username":"alice","groups":["system:authenticated"],"extra":{"authentication.kubernetes.io/`) {
			t.Errorf("%s: %d %s, want %s", name, got.status, userInfo(got.body), userInfo(want.body))
		}
	}
	// User names and groups that header parsing could change.
	for name, caller := range map[string]*testUser{
		"system:masters":              s.newCertificateUser(t, "eve", "system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:root:universal"),
		"system:masters with spaces":  s.newCertificateUser(t, "eve", "system:masters ", " system:masters", "\tsystem:masters"),
		"bob with a trailing space":   s.newCertificateUser(t, "bob "),
		"bob with a leading space":    s.newCertificateUser(t, " bob"),
		"user name with a line break": s.newCertificateUser(t, "eve\r\nX-Remote-Group: system:masters"),
		"group with a line break":     s.newCertificateUser(t, "eve", "x\r\nX-Remote-Group: system:masters"),
		"bob with a trailing tab":     s.newCertificateUser(t, "bob\t"),
		"group of service accounts":   s.newCertificateUser(t, "eve", "system:serviceaccounts"),
		"the loopback user":           s.newCertificateUser(t, "system:apiserver"),
		"the proxy":                   s.newCertificateUser(t, proxyName),
		"the proxy in system:masters": s.newCertificateUser(t, proxyName, "system:masters"),
	} {
		for _, h := range []http.Header{nil, {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}, {"X-Remote-User": {"bob"}}} {
			sender := caller
			if h.Get("Upgrade") != "" {
				sender = caller.withHTTP1(t)
			}
			got := s.send(t, sender, s.proxyURL, request{path: "/clusters/" + s.b + confidentialPath, header: h})
			if strings.Contains(got.body, confidentialData) || got.status == http.StatusOK {
				t.Errorf("%s with %v: %d %s", name, h, got.status, got.body)
			}
		}
	}
}

func userInfo(body string) string {
	_, info, _ := strings.Cut(body, `"userInfo"`)
	return info
}
