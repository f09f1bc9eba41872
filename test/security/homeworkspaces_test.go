package security_test

import (
	"net/http"
	"strings"
	"testing"
)

// testHomeWorkspaces requests home workspaces by names that resemble those of other users, and the home workspaces of
// other users.
func testHomeWorkspaces(t *testing.T, s *env) {
	const own = "/clusters/root" + workspacesPath + "/~"
	get := func(caller *testUser, h http.Header) httpResponse {
		return s.sendToShard(t, caller, request{path: own, header: h})
	}
	clusterOf := func(a httpResponse) string {
		if a.status != http.StatusOK {
			return ""
		}
		cluster, _ := a.object(t)["spec"].(map[string]any)["cluster"].(string)
		return cluster
	}
	homeB := clusterOf(s.waitForHome(t, s.adminB, own))
	if homeB == "" {
		t.Skip("bob has no home workspace")
	}
	for _, name := range []string{"Bob", "BOB", "bob ", " bob", "bob:", "user:bob", "bob%2f", "b%6fb", "ｂob", "bob\u200b", "root", "system:admin", "~", "*", s.b, homeB, "system:apiserver", "system:kcp:serviceaccount:" + s.b + ":default:builder"} {
		caller := s.newCertificateUser(t, name)
		got := s.waitForHome(t, caller, own)
		if cluster := clusterOf(got); cluster == homeB || cluster == s.b || cluster == "root" {
			t.Errorf("%q gets home workspace %s", name, cluster)
		}
		for _, path := range []string{"/clusters/" + homeB + "/api", "/clusters/user:bob/api", "/clusters/user:bob" + configMapsPath} {
			for _, base := range s.serverURLs() {
				if got := s.send(t, caller, base, request{path: path}); got.status < 400 {
					t.Errorf("%q gets %s of bob's home workspace: %d %.200s", name, path, got.status, got.body)
				}
			}
		}
	}
	for _, caller := range []*testUser{s.anonymous, s.serviceAccount} {
		if got := get(caller, nil); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
			t.Errorf("%s gets a home workspace: %d %.300s", caller.name, got.status, got.body)
		}
	}
	for _, h := range []http.Header{{"Impersonate-User": {"bob"}}, {"X-Remote-User": {"bob"}}, {"Impersonate-Uid": {"bob"}}, {"Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"bob"}`}, "Impersonate-User": {"mallory"}}} {
		for _, caller := range []*testUser{s.adminA, s.unrelatedUser, s.serviceAccount} {
			if got := get(caller, h); clusterOf(got) == homeB {
				t.Errorf("%s with %v gets the home workspace of bob: %.300s", caller.name, h, got.body)
			}
		}
	}
	// For a watch of a home workspace, the server returns the user's own, or refuses.
	if got := s.sendToShard(t, s.unrelatedUser, request{path: "/clusters/root" + workspacesPath + "/~?watch=1&timeoutSeconds=1"}); got.status >= 500 || strings.Contains(got.body, homeB) {
		t.Errorf("watch: %d %.300s", got.status, got.body)
	}
	for _, other := range []request{
		{path: "/clusters/" + s.a + workspacesPath + "/~"}, {path: "/clusters/root" + workspacesPath + "/~/status"}, {method: http.MethodDelete, path: own}, {method: http.MethodPatch, path: own, body: `{}`, contentType: mergePatchType}, {method: http.MethodPut, path: own, body: `{}`},
		{path: "/clusters/*" + workspacesPath + "/~"}, {path: "/clusters/root" + workspacesPath + "/%7e%7e"},
	} {
		if got := s.sendToShard(t, s.unrelatedUser, other); got.status < 400 || got.status >= 500 || strings.Contains(got.body, homeB) {
			t.Errorf("%s %s: %d %.300s", other.method, other.path, got.status, got.body)
		}
	}
}

// waitForHome polls until a home workspace that is being created exists.
func (e *env) waitForHome(t *testing.T, caller *testUser, path string) httpResponse {
	t.Helper()
	var got httpResponse
	for range 200 {
		if got = e.sendToShard(t, caller, request{path: path}); got.status != http.StatusTooManyRequests {
			return got
		}
		e.do(t, e.adminB, e.b, request{path: "/version"}) // spends one request before the next attempt
	}
	return got
}
