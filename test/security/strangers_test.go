package security_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// nobodys is the name of a logical cluster that does not exist.
const nobodys = "0123456789abcdef"

// existence compares, as users without permissions, the responses for names that exist, on this or on another shard,
// and names that do not. The front proxy itself answers requests for what it does not find, with another message than a
// shard: there only the status, and only for authenticated users, reveals nothing (the threat model describes the
// rest).
func existence(t *testing.T, s *site) {
	for _, base := range s.servers() {
		for _, who := range []*person{s.stranger, s.anonymous, s.robot, s.admin} {
			for _, path := range []string{treasurePath, "/api/v1/configmaps", configMapsOfNS + "/none", "/version", "/api", "/openapi/v3", "/", "/nothing", "/apis/core.kcp.io/v1alpha1/shards", ownClusterPath, "/api/v1/nothing", "/healthz", "/metrics"} {
				for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
					if base == s.proxy && (who == s.anonymous || path == "/healthz" || path == "/metrics") {
						continue
					}
					there := s.try(t, who, base, request{method: method, path: "/clusters/" + s.b + path})
					for _, other := range []string{nobodys, "system:admin"} {
						s.alike(t, base, who.name+" "+method+" "+path, there, s.try(t, who, base, request{method: method, path: "/clusters/" + other + path}), other)
					}
				}
			}
		}
	}
	// At the proxy responses for unknown logical clusters are identical, whatever the form of the name.
	for _, who := range []*person{s.stranger, s.anonymous} {
		want := s.try(t, who, s.proxy, request{path: "/clusters/" + nobodys + "/api/v1/configmaps"})
		for _, cluster := range []string{"*", "root:nobody", "root:b:nobody", s.b + ":nobody", "system:admin", "system:shard", "user:bob", "UPPER", "a b", "%2e%2e"} {
			got := s.try(t, who, s.proxy, request{path: "/clusters/" + cluster + "/api/v1/configmaps"})
			if got.status != http.StatusForbidden || len(got.body) == 0 || !strings.Contains(got.body, "workspace access not permitted") || want.status != got.status {
				t.Errorf("%s asks the proxy for %s: %d %s", who.name, cluster, got.status, got.body)
			}
		}
	}
}

// alike compares the response for b with that for another logical cluster.
func (s *site) alike(t *testing.T, base, what string, there, gone answer, other string) {
	t.Helper()
	if there.status == 0 || there.status != gone.status || base != s.proxy && strings.ReplaceAll(there.body, s.b, other) != gone.body {
		t.Errorf("%s at the %s: %d %s\nbut in %s: %d %s", what, s.called(base), there.status, there.body, other, gone.status, gone.body)
	}
	for name := range there.header {
		if base != s.proxy && !strings.HasPrefix(name, "Audit-Id") && name != "Date" && name != "Content-Length" && there.header.Get(name) != gone.header.Get(name) {
			t.Errorf("%s at the %s: header %s is %q, but in %s %q", what, s.called(base), name, there.header.Get(name), other, gone.header.Get(name))
		}
	}
}

// elsewhere requests, directly at every shard, logical clusters and paths of all shards with all verbs. Logical
// clusters that the shard does not have, and those that the user may not see, are refused without a hint about their
// shard.
func elsewhere(t *testing.T, s *site) {
	places := []string{s.a, s.b, nobodys, "root:a", "root:b", "root:nobody", "root:b:x", "root:a:x", s.b + ":x", nobodys + ":x", s.a + ":x", "root:a:root:b"}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"evil"}}`
	for _, name := range s.layout.Shards() {
		base := s.layout.URL(name)
		for _, who := range []*person{s.stranger, s.anonymous, s.robot, s.admin, s.owner} {
			for _, place := range places {
				for _, r := range []request{
					{path: treasurePath}, {path: "/api/v1/configmaps"}, {path: "/api/v1/configmaps?watch=1&timeoutSeconds=1"}, {path: "/api"}, {path: "/version"}, {path: "/openapi/v3"}, {path: "/"},
					{method: http.MethodHead, path: treasurePath}, {method: http.MethodOptions, path: treasurePath}, {method: http.MethodPost, path: configMapsOfNS, body: body}, {method: http.MethodPut, path: treasurePath, body: body},
					{method: http.MethodPatch, path: treasurePath, body: "{}", contentType: mergePatchType}, {method: http.MethodPatch, path: treasurePath + "?fieldManager=x", body: body, contentType: applyPatchType}, {method: http.MethodDelete, path: treasurePath}, {method: http.MethodDelete, path: configMapsOfNS},
				} {
					if who == s.owner && (place == s.b || place == "root:b") || (who == s.admin || who == s.robot) && (place == s.a || place == "root:a") {
						continue // permitted at the shard that has it
					}
					r.path = "/clusters/" + place + r.path
					got := s.try(t, who, base, r)
					switch got.status {
					case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
					default:
						t.Errorf("%s: %s %s at %s: %d %.300s", who.name, r.method, r.path, name, got.status, got.body)
					}
					said := fmt.Sprint(got.body, got.header)
					for _, secret := range append(s.servers(), s.a, s.b, treasure, "alpha", "beta") {
						if strings.Contains(said, secret) && !strings.Contains(r.path, secret) {
							t.Errorf("%s is told %q: %s %s at %s: %d %.300s", who.name, secret, r.method, r.path, name, got.status, said)
						}
					}
				}
			}
		}
	}
}

// timing compares how long shards take to refuse requests for logical clusters that are on another shard, on this one,
// and on none.
func timing(t *testing.T, s *site) {
	const rounds = 101
	for _, who := range []*person{s.stranger, s.admin} {
		for _, name := range s.layout.Shards() {
			base := s.layout.URL(name)
			took := map[string][]time.Duration{}
			for range rounds {
				for _, cluster := range []string{s.b, nobodys} {
					began := time.Now()
					s.try(t, who, base, request{path: "/clusters/" + cluster + "/api/v1/configmaps"})
					took[cluster] = append(took[cluster], time.Since(began))
				}
			}
			median := func(cluster string) time.Duration {
				slices.Sort(took[cluster])
				return took[cluster][rounds/2]
			}
			there, gone := median(s.b), median(nobodys)
			t.Logf("%s at the %s: %s for a logical cluster that exists, %s for one that does not", who.name, s.called(base), there, gone)
			if slower, faster := max(there, gone), min(there, gone); slower > 3*faster && slower > faster+5*time.Millisecond {
				t.Errorf("%s at the %s: %s for a logical cluster that exists, %s for one that does not", who.name, s.called(base), there, gone)
			}
		}
	}
}

// proxyHeaders sends all spellings of identity headers through the proxy and reads from the shard which user it
// authenticated.
func proxyHeaders(t *testing.T, s *site) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	ask := func(who *person, h http.Header) answer {
		return s.try(t, who, s.proxy, request{method: http.MethodPost, path: "/clusters/" + s.a + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: review, header: h})
	}
	want := ask(s.admin, nil)
	if want.status != http.StatusCreated || !strings.Contains(want.body, `"username":"alice"`) {
		t.Fatalf("%d %s", want.status, want.body)
	}
	for name, h := range map[string]http.Header{
		"plain":              {"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"1"}, "X-Remote-Extra-Scopes": {"x"}},
		"odd case":           {"x-rEmOtE-uSeR": {"bob"}, "x-remote-group": {"system:masters"}},
		"underscores":        {"X_Remote_User": {"bob"}, "X-Remote_Group": {"system:masters"}},
		"hop by hop":         {"Connection": {"X-Remote-User, X-Remote-Group, Authorization"}},
		"hop by hop and set": {"Connection": {"close, X-Remote-User"}, "X-Remote-User": {"bob"}},
		"a scope":            {"X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:" + s.b}},
		"a warrant":          {"X-Remote-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"bob","groups":["system:masters"]}`}},
		"a trailer":          {"Trailer": {"X-Remote-User"}, "X-Remote-User": {"bob"}},
		"no proxy":           {"X-Kubernetes-Sharded-Request": {"true"}, "X-Remote-User": {"bob"}},
		"a token beside":     {"Authorization": {"Bearer " + s.robot.token}},
	} {
		who := s.admin
		if h.Get("Connection") != "" { // HTTP/2 has no such header
			who = s.admin.overHTTP1(t)
		}
		got := ask(who, h)
		if got.status != http.StatusCreated || !strings.HasPrefix(userInfo(got.body), `:{"username":"alice","groups":["system:authenticated"],"extra":{"authentication.kubernetes.io/`) {
			t.Errorf("%s: %d %s, want %s", name, got.status, userInfo(got.body), userInfo(want.body))
		}
	}
	// User names and groups that would change on the way.
	for name, who := range map[string]*person{
		"masters":                   s.withCertificate(t, "eve", "system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:root:universal"),
		"masters with a space":      s.withCertificate(t, "eve", "system:masters ", " system:masters", "\tsystem:masters"),
		"bob with a space":          s.withCertificate(t, "bob "),
		"bob behind a space":        s.withCertificate(t, " bob"),
		"bob and a line":            s.withCertificate(t, "eve\r\nX-Remote-Group: system:masters"),
		"masters behind a line":     s.withCertificate(t, "eve", "x\r\nX-Remote-Group: system:masters"),
		"bob with a tab":            s.withCertificate(t, "bob\t"),
		"a service account of b":    s.withCertificate(t, "eve", "system:serviceaccounts"),
		"the loopback user":         s.withCertificate(t, "system:apiserver"),
		"the proxy":                 s.withCertificate(t, proxyName),
		"the proxy, naming another": s.withCertificate(t, proxyName, "system:masters"),
	} {
		for _, h := range []http.Header{nil, {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}, {"X-Remote-User": {"bob"}}} {
			sender := who
			if h.Get("Upgrade") != "" {
				sender = who.overHTTP1(t)
			}
			got := s.try(t, sender, s.proxy, request{path: "/clusters/" + s.b + treasurePath, header: h})
			if strings.Contains(got.body, treasure) || got.status == http.StatusOK {
				t.Errorf("%s with %v: %d %s", name, h, got.status, got.body)
			}
		}
	}
}

func userInfo(body string) string {
	_, info, _ := strings.Cut(body, `"userInfo"`)
	return info
}
