package security_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
)

// testForeignIssuers runs a token issuer of a that issues tokens for any user, and sends them to all logical clusters.
func testForeignIssuers(t *testing.T, s *env) {
	issuer := issuertest.Start(t)
	bundle, err := json.Marshal(issuer.CA)
	must(t, err)
	expression := func(text string) string { return `{"expression":"` + text + `"}` }
	extras := ""
	for i, key := range []string{"authentication.kcp.io/scopes", "authorization.kcp.io/warrant", "x.authentication.kcp.io/scopes", "example.com/kcp.io", "example.com/authentication%2ekcp%2eio%2fscopes", "example.com/x"} {
		if i > 0 {
			extras += ","
		}
		extras += fmt.Sprintf(`{"key":%q,"valueExpression":"claims.extra"}`, key)
	}
	s.createObject(t, configurationsPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceAuthenticationConfiguration","metadata":{"name":"own"},"spec":{"jwt":[{
		"issuer":{"url":"`+issuer.URL+`","certificateAuthority":`+string(bundle)+`,"audiences":["`+issuertest.Audience+`"]},
		"claimMappings":{"username":`+expression("claims.sub")+`,"groups":`+expression("claims.groups")+`,"uid":`+expression("claims.sub")+`,"extra":[`+extras+`]}}]}}`)
	s.createObject(t, typesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"sso"},"spec":{"extend":{"with":[{"name":"universal","path":"root"}]},"authenticationConfigurations":[{"name":"own"}]}}`)
	s.createObject(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"sso"},"spec":{`+s.remoteLocation()+`,"type":{"name":"sso","path":"root:a"}}}`)
	s.waitReady(t, s.a, "sso")
	child := s.workspaceCluster(t, s.a, "sso")
	allUsers := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"all-users"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}]}`
	if got := s.do(t, s.masters, child, request{method: http.MethodPost, path: clusterBindings, body: allUsers}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	groups := []string{"system:masters", "system:kcp:admin", "system:kcp:logical-cluster-admin", "system:cluster:" + s.b, "system:cluster:partner", "system:kcp:initializer:root:universal", "system:serviceaccounts", "tenants"}
	// The values of all extra keys: a scope of b, and a warrant of a privileged user.
	extra := []string{"cluster:" + s.b, `{"user":"bob","groups":["system:masters"]}`}
	for _, name := range []string{"bob", "kcp-admin", "system:apiserver", "system:serviceaccount:default:builder", "system:kcp:serviceaccount:partner:default:builder", " system:masters", "bob\n", "", proxyName} {
		token := issuer.Token(t, map[string]any{"sub": name, "groups": groups, "extra": extra})
		caller := s.newUser(t, fmt.Sprintf("%q of the issuer of a", name), nil)
		caller.token = token
		t.Run(caller.name, func(t *testing.T) { s.testIssuerToken(t, caller, child) })
	}
	forgedAs := map[string]map[string]any{
		"for another audience":             {"aud": "others"},
		"of service accounts":              {"iss": "https://kcp.default.svc", "kubernetes.io": map[string]any{"namespace": "default", "clusterName": child, "serviceaccount": map[string]any{"name": "default", "uid": "x"}}},
		"that has expired":                 {"exp": 1},
		"with distributed claims":          {"_claim_names": map[string]any{"groups": "x"}, "_claim_sources": map[string]any{"x": map[string]any{"endpoint": s.shardURL}}},
		"of two issuers":                   {"iss": []string{issuer.URL, "x"}},
		"with a subject that is an object": {"sub": map[string]any{"a": "b"}},
	}
	for name, claims := range forgedAs {
		all := map[string]any{"sub": "bob", "groups": groups, "extra": extra}
		for key, value := range claims {
			all[key] = value
		}
		caller := s.newUser(t, "a token "+name, nil)
		caller.token = issuer.Token(t, all)
		for _, base := range s.serverURLs() {
			if got := s.send(t, caller, base, request{path: "/clusters/" + child + "/api/v1/namespaces"}); got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
				t.Errorf("%s: %d %.300s", caller.name, got.status, got.body)
			}
		}
	}
}

// testIssuerToken sends requests to all logical clusters with a token of an issuer that only the logical cluster child
// accepts.
func (e *env) testIssuerToken(t *testing.T, caller *testUser, child string) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	accepted := false
	for _, base := range e.serverURLs() {
		got := e.send(t, caller, base, request{method: http.MethodPost, path: "/clusters/" + child + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: review})
		switch got.status {
		case http.StatusCreated:
			accepted = true
		case http.StatusUnauthorized, http.StatusForbidden:
			continue
		default:
			t.Errorf("%d %.300s", got.status, got.body)
		}
		var seen struct {
			Status struct {
				UserInfo struct {
					Username string
					Groups   []string
					Extra    map[string][]string
				}
			}
		}
		must(t, json.Unmarshal([]byte(got.body), &seen))
		user := seen.Status.UserInfo
		if strings.HasPrefix(strings.TrimSpace(user.Username), "system:") && strings.HasPrefix(user.Username, "system:") {
			t.Errorf("the name is %q", user.Username)
		}
		for _, group := range user.Groups {
			if strings.HasPrefix(group, "system:") && group != "system:authenticated" {
				t.Errorf("%s is in group %q", user.Username, group)
			}
		}
		for key, values := range user.Extra {
			if strings.Contains(key, "kcp.io") && fmt.Sprint(values) != "["+child+"]" && fmt.Sprint(values) != "[cluster:"+child+"]" {
				t.Errorf("%s has extra %s: %q", user.Username, key, values)
			}
		}
	}
	home := "/clusters/root" + workspacesPath + "/~"
	for _, base := range e.serverURLs() {
		for _, path := range []string{
			"/clusters/" + e.b + confidentialPath, "/clusters/root:b" + confidentialPath, "/clusters/" + e.a + confidentialPath, "/clusters/root/api/v1/namespaces", home, "/clusters/system:admin/api", "/clusters/*/api/v1/configmaps",
			"/clusters/user:bob/api", "/metrics", e.lifecycleVirtualWorkspacePath("initializingworkspaces", "sso", child) + "/api", "/services/initializingworkspaces/" + e.b + ":private/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", "/services/initializingworkspaces/root:universal/clusters/" + child + "/api",
		} {
			if got := e.send(t, caller, base, request{path: path}); got.status < 400 || got.status >= 500 || strings.Contains(got.body, confidentialData) {
				t.Errorf("%s: %d %.300s", path, got.status, got.body)
			}
		}
	}
	if !accepted {
		return
	}
	// Inside of child, as the user and impersonating others: b stays inaccessible.
	for _, h := range []http.Header{
		nil, {"Impersonate-User": {"bob"}}, {"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:authenticated", "system:cluster:partner"}},
		{"Impersonate-User": {"bob"}, "Impersonate-Extra-Authentication.kcp.io%2fscopes": {"cluster:" + e.b}},
		{"Impersonate-User": {"alice"}, "Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"bob"}`}},
	} {
		got := e.do(t, caller, child, request{method: http.MethodPost, path: workspacesPath + "?dryRun=All", header: h,
			body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"generateName":"stolen-"},"spec":{"type":{"name":"private","path":"root:b"}}}`})
		if got.status != http.StatusForbidden {
			t.Errorf("with %v a workspace of b's private type: %d %.300s", h, got.status, got.body)
		}
	}
}
