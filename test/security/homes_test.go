package security_test

import (
	"net/http"
	"strings"
	"testing"
)

// homes requests home workspaces by names that resemble those of other users, and the home workspaces of other users.
func homes(t *testing.T, s *site) {
	const own = "/clusters/root" + workspacesPath + "/~"
	ask := func(who *person, h http.Header) answer { return s.ask(t, who, request{path: own, header: h}) }
	clusterOf := func(a answer) string {
		if a.status != http.StatusOK {
			return ""
		}
		cluster, _ := a.object(t)["spec"].(map[string]any)["cluster"].(string)
		return cluster
	}
	bobs := clusterOf(s.settled(t, s.owner, own))
	if bobs == "" {
		t.Skip("bob has no home here")
	}
	for _, name := range []string{"Bob", "BOB", "bob ", " bob", "bob:", "user:bob", "bob%2f", "b%6fb", "ｂob", "bob\u200b", "root", "system:admin", "~", "*", s.b, bobs, "system:apiserver", "system:kcp:serviceaccount:" + s.b + ":default:robot"} {
		who := s.withCertificate(t, name)
		got := s.settled(t, who, own)
		if cluster := clusterOf(got); cluster == bobs || cluster == s.b || cluster == "root" {
			t.Errorf("%q is at home in %s", name, cluster)
		}
		for _, path := range []string{"/clusters/" + bobs + "/api", "/clusters/user:bob/api", "/clusters/user:bob" + configMapsOfNS} {
			for _, base := range s.servers() {
				if got := s.try(t, who, base, request{path: path}); got.status < 400 {
					t.Errorf("%q enters bob's home by %s: %d %.200s", name, path, got.status, got.body)
				}
			}
		}
	}
	for _, who := range []*person{s.anonymous, s.robot} {
		if got := ask(who, nil); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
			t.Errorf("%s has a home: %d %.300s", who.name, got.status, got.body)
		}
	}
	for _, h := range []http.Header{{"Impersonate-User": {"bob"}}, {"X-Remote-User": {"bob"}}, {"Impersonate-Uid": {"bob"}}, {"Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"bob"}`}, "Impersonate-User": {"mallory"}}} {
		for _, who := range []*person{s.admin, s.stranger, s.robot} {
			if got := ask(who, h); clusterOf(got) == bobs {
				t.Errorf("%s with %v is at home in bob's: %.300s", who.name, h, got.body)
			}
		}
	}
	// A watch of a home workspace returns the user's own, or is refused.
	if got := s.ask(t, s.stranger, request{path: "/clusters/root" + workspacesPath + "/~?watch=1&timeoutSeconds=1"}); got.status >= 500 || strings.Contains(got.body, bobs) {
		t.Errorf("watch: %d %.300s", got.status, got.body)
	}
	for _, other := range []request{
		{path: "/clusters/" + s.a + workspacesPath + "/~"}, {path: "/clusters/root" + workspacesPath + "/~/status"}, {method: http.MethodDelete, path: own}, {method: http.MethodPatch, path: own, body: `{}`, contentType: mergePatchType}, {method: http.MethodPut, path: own, body: `{}`},
		{path: "/clusters/*" + workspacesPath + "/~"}, {path: "/clusters/root" + workspacesPath + "/%7e%7e"},
	} {
		if got := s.ask(t, s.stranger, other); got.status < 400 || got.status >= 500 || strings.Contains(got.body, bobs) {
			t.Errorf("%s %s: %d %.300s", other.method, other.path, got.status, got.body)
		}
	}
}

// settled polls until a home workspace that is being created exists.
func (s *site) settled(t *testing.T, who *person, path string) answer {
	t.Helper()
	var got answer
	for range 200 {
		if got = s.ask(t, who, request{path: path}); got.status != http.StatusTooManyRequests {
			return got
		}
		s.do(t, s.owner, s.b, request{path: "/version"}) // spends one request before the next attempt
	}
	return got
}
