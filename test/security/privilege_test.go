package security_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// testRoles creates roles and bindings in a that would grant access to other logical clusters, as its administrator and
// as a user with fewer permissions.
func testRoles(t *testing.T, s *env) {
	role := func(name, extra string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q,"labels":{"rbac.authorization.k8s.io/aggregate-to-admin":"true","rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}]%s}`, name, extra)
	}
	bind := func(name, role, kind, subject string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":%q,"apiGroup":"rbac.authorization.k8s.io","name":%q}]}`, name, role, kind, subject)
	}
	for _, name := range []string{"system:kcp:workspace:access", "view", "all-permissions"} {
		s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: clusterRoles, body: role(name, "")})
	}
	s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: clusterRoles, body: role("sum", `,"aggregationRule":{"clusterRoleSelectors":[{}]}`)})
	for i, subject := range []string{"system:authenticated", "system:unauthenticated", "system:masters", "system:serviceaccounts"} {
		if got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: clusterBindings, body: bind(fmt.Sprintf("all-%d", i), "all-permissions", "Group", subject)}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	// mallory, who is in system:authenticated, is administrator of a now, and has no other permissions.
	s.waitForStatus(t, s.unrelatedUser, s.a, "/api/v1/namespaces/default", http.StatusOK)
	for _, cluster := range []string{s.b, "system:admin", "system:shard", "*"} {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
			for _, path := range []string{confidentialPath, "/version", "/api", clusterRoles, "/"} {
				for _, base := range s.workspaceServerURLs() {
					if got := s.send(t, caller, base, request{path: "/clusters/" + cluster + path}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s gets %s of %s at the %s: %d %.300s", caller.name, path, cluster, s.serverName(base), got.status, got.body)
					}
				}
			}
		}
	}
	for _, base := range s.serverURLs() {
		if got := s.send(t, s.unrelatedUser, base, request{path: "/metrics"}); got.status != http.StatusForbidden {
			t.Errorf("metrics of the %s: %d", s.serverName(base), got.status)
		}
	}
	for i := range 4 {
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/all-%d", clusterBindings, i)})
	}
	for _, name := range []string{"system:kcp:workspace:access", "view", "all-permissions", "sum"} {
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: clusterRoles + "/" + name})
	}
	s.waitForStatus(t, s.unrelatedUser, s.a, "/api/v1/namespaces/default", http.StatusForbidden)
}

// testImpersonation impersonates every identity that could have permissions outside of a.
func testImpersonation(t *testing.T, s *env) {
	impersonate := func(user string, groups ...string) http.Header {
		return http.Header{"Impersonate-User": {user}, "Impersonate-Group": groups}
	}
	extra := func(h http.Header, key, value string) http.Header {
		h["Impersonate-Extra-"+url.PathEscape(key)] = []string{value}
		return h
	}
	warrant := func(user string, groups ...string) string {
		text, _ := json.Marshal(map[string]any{"user": user, "groups": groups})
		return string(text)
	}
	warrantB := `{"user":"system:serviceaccount:default:builder","groups":["system:serviceaccounts"],"extra":{"authentication.kcp.io/cluster-name":["` + s.b + `"]}}`
	for name, h := range map[string]http.Header{
		"system:masters":                          impersonate("x", "system:masters"),
		"system:kcp:admin":                        impersonate("x", "system:kcp:admin"),
		"the bootstrapper":                        impersonate("x", "system:kcp:tenancy:workspace-bootstrapper"),
		"logical cluster administrator":           impersonate("x", "system:kcp:logical-cluster-admin"),
		"external logical cluster administrator":  impersonate("x", "system:kcp:external-logical-cluster-admin"),
		"an initializer":                          impersonate("x", "system:kcp:initializer:root:universal"),
		"bob":                                     impersonate("bob"),
		"the loopback user":                       impersonate("system:apiserver"),
		"bob with the scope of b":                 extra(impersonate("bob"), "authentication.kcp.io/scopes", "cluster:"+s.b),
		"bob from b":                              extra(impersonate("bob"), "authentication.kcp.io/cluster-name", s.b),
		"bob's warrant":                           extra(impersonate("x"), "authorization.kcp.io/warrant", warrant("bob")),
		"a warrant for system:masters":            extra(impersonate("x"), "authorization.kcp.io/warrant", warrant("bob", "system:masters")),
		"a warrant for system:kcp:admin":          extra(impersonate("x"), "authorization.kcp.io/warrant", warrant("bob", "system:kcp:admin")),
		"service account of b":                    extra(impersonate("system:serviceaccount:default:builder"), "authentication.kcp.io/cluster-name", s.b),
		"global name of the service account of b": impersonate("system:kcp:serviceaccount:" + s.b + ":default:builder"),
		"a warrant for the service account of b":  extra(impersonate("x"), "authorization.kcp.io/warrant", warrantB),
		"service account without a cluster":       impersonate("system:serviceaccount:default:builder"),
		"group of the users of b":                 impersonate("x", "system:cluster:"+s.b),
		"system:masters in mixed case":            {"impersonate-user": {"x"}, "IMPERSONATE-GROUP": {"system:masters"}},
		"system:masters through the proxy":        {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}, "X-Remote-Group": {"system:masters"}},
	} {
		for _, cluster := range []string{s.b, "system:admin", "*"} {
			for _, base := range s.workspaceServerURLs() {
				for _, caller := range []*testUser{s.adminA, s.serviceAccount} {
					got := s.send(t, caller, base, request{path: "/clusters/" + cluster + confidentialPath, header: h})
					if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s as %s in %s: %d %.300s", caller.name, name, cluster, got.status, got.body)
					}
				}
			}
		}
	}
	// Inside of a, alice may impersonate any identity, but its permissions end at a: the server refuses a workspace
	// type of b that only bob may use.
	create := func(h http.Header) httpResponse {
		return s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath + "?dryRun=All", header: h,
			body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"generateName":"stolen-"},"spec":{"type":{"name":"private","path":"root:b"}}}`})
	}
	for name, h := range map[string]http.Header{
		"alice herself":                  nil,
		"bob":                            impersonate("bob", "system:authenticated"),
		"bob's warrant":                  extra(impersonate("alice", "system:authenticated"), "authorization.kcp.io/warrant", warrant("bob")),
		"nested warrant":                 extra(impersonate("alice", "system:authenticated"), "authorization.kcp.io/warrant", `{"user":"x","extra":{"authorization.kcp.io/warrant":["{\"user\":\"bob\"}"]}}`),
		"group of the partner's users":   impersonate("alice", "system:authenticated", "system:cluster:partner"),
		"user of the partner":            extra(impersonate("alice", "system:authenticated"), "authentication.kcp.io/cluster-name", "partner"),
		"service account of the partner": extra(impersonate("system:serviceaccount:default:builder"), "authentication.kcp.io/cluster-name", "partner"),
		"global name of the partner's service account": impersonate("system:kcp:serviceaccount:partner:default:builder", "system:authenticated"),
		"a warrant for the partner's service account":  extra(impersonate("alice", "system:authenticated"), "authorization.kcp.io/warrant", strings.ReplaceAll(warrantB, s.b, "partner")),
		"a warrant for the partner's group":            extra(impersonate("alice", "system:authenticated"), "authorization.kcp.io/warrant", `{"user":"alice","groups":["system:cluster:partner"]}`),
	} {
		if got := create(h); got.status != http.StatusForbidden {
			t.Errorf("as %s a workspace of b's private type: %d %.400s", name, got.status, got.body)
		}
	}
}
