package security_test

import (
	"net/http"
	"strings"
	"testing"
)

// existence compares, as somebody without rights, what is answered for names that exist and names that do not.
func existence(t *testing.T, s *site) {
	const nobody = "0123456789abcdef"
	for _, who := range []*person{s.stranger, s.anonymous, s.robot, s.admin} {
		for _, path := range []string{treasurePath, "/api/v1/configmaps", configMapsOfNS + "/none", "/version", "/api", "/openapi/v3", "/", "/nothing", "/apis/core.kcp.io/v1alpha1/shards", ownClusterPath, "/api/v1/nothing", "/healthz", "/metrics"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
				there := s.do(t, who, s.b, request{method: method, path: path})
				for _, other := range []string{nobody, "system:admin"} {
					gone := s.do(t, who, other, request{method: method, path: path})
					if there.status != gone.status || strings.ReplaceAll(there.body, s.b, other) != gone.body {
						t.Errorf("%s %s %s: %d %s\nbut in %s: %d %s", who.name, method, path, there.status, there.body, other, gone.status, gone.body)
					}
					for name := range there.header {
						if !strings.HasPrefix(name, "Audit-Id") && name != "Date" && name != "Content-Length" && there.header.Get(name) != gone.header.Get(name) {
							t.Errorf("%s %s %s: header %s is %q, but in %s %q", who.name, method, path, name, there.header.Get(name), other, gone.header.Get(name))
						}
					}
				}
			}
		}
	}
	// At the proxy what is unknown looks alike, whatever is odd about it.
	for _, who := range []*person{s.stranger, s.anonymous} {
		want := s.try(t, who, s.proxy, request{path: "/clusters/" + nobody + "/api/v1/configmaps"})
		for _, cluster := range []string{"*", "root:nobody", "root:b:nobody", s.b + ":nobody", "system:admin", "system:shard", "user:bob", "UPPER", "a b", "%2e%2e"} {
			got := s.try(t, who, s.proxy, request{path: "/clusters/" + cluster + "/api/v1/configmaps"})
			if got.status != http.StatusForbidden || len(got.body) == 0 || !strings.Contains(got.body, "workspace access not permitted") || want.status != got.status {
				t.Errorf("%s asks the proxy for %s: %d %s", who.name, cluster, got.status, got.body)
			}
		}
	}
}

// proxyHeaders sends all spellings of identity headers through the proxy and asks the shard who it saw.
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
	// Names and groups that become others on the way.
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
