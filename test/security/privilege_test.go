package security_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// roles creates roles and bindings in a that would grant access to other logical clusters, as its administrator and as
// a user with fewer permissions.
func roles(t *testing.T, s *site) {
	role := func(name, extra string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q,"labels":{"rbac.authorization.k8s.io/aggregate-to-admin":"true","rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}]%s}`, name, extra)
	}
	bind := func(name, role, kind, subject string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":%q,"apiGroup":"rbac.authorization.k8s.io","name":%q}]}`, name, role, kind, subject)
	}
	for _, name := range []string{"system:kcp:workspace:access", "view", "everything"} {
		s.do(t, s.admin, s.a, request{method: http.MethodPost, path: clusterRoles, body: role(name, "")})
	}
	s.do(t, s.admin, s.a, request{method: http.MethodPost, path: clusterRoles, body: role("sum", `,"aggregationRule":{"clusterRoleSelectors":[{}]}`)})
	for i, subject := range []string{"system:authenticated", "system:unauthenticated", "system:masters", "system:serviceaccounts"} {
		if got := s.do(t, s.admin, s.a, request{method: http.MethodPost, path: clusterBindings, body: bind(fmt.Sprintf("all-%d", i), "everything", "Group", subject)}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	// mallory, who is in system:authenticated, is administrator of a now, and has no other permissions.
	s.eventually(t, s.stranger, s.a, "/api/v1/namespaces/default", http.StatusOK)
	for _, cluster := range []string{s.b, "system:admin", "system:shard", "*"} {
		for _, who := range []*person{s.admin, s.robot, s.stranger, s.anonymous} {
			for _, path := range []string{treasurePath, "/version", "/api", clusterRoles, "/"} {
				for _, base := range s.doors() {
					if got := s.try(t, who, base, request{path: "/clusters/" + cluster + path}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s gets %s of %s at the %s: %d %.300s", who.name, path, cluster, s.called(base), got.status, got.body)
					}
				}
			}
		}
	}
	for _, base := range s.servers() {
		if got := s.try(t, s.stranger, base, request{path: "/metrics"}); got.status != http.StatusForbidden {
			t.Errorf("metrics of the %s: %d", s.called(base), got.status)
		}
	}
	for i := range 4 {
		s.do(t, s.admin, s.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/all-%d", clusterBindings, i)})
	}
	for _, name := range []string{"system:kcp:workspace:access", "view", "everything", "sum"} {
		s.do(t, s.admin, s.a, request{method: http.MethodDelete, path: clusterRoles + "/" + name})
	}
	s.eventually(t, s.stranger, s.a, "/api/v1/namespaces/default", http.StatusForbidden)
}

// impersonation impersonates every identity that could have permissions outside of a.
func impersonation(t *testing.T, s *site) {
	as := func(user string, groups ...string) http.Header {
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
	robotOfB := `{"user":"system:serviceaccount:default:robot","groups":["system:serviceaccounts"],"extra":{"authentication.kcp.io/cluster-name":["` + s.b + `"]}}`
	for name, h := range map[string]http.Header{
		"system:masters":                   as("x", "system:masters"),
		"system:kcp:admin":                 as("x", "system:kcp:admin"),
		"the bootstrapper":                 as("x", "system:kcp:tenancy:workspace-bootstrapper"),
		"a manager of clusters":            as("x", "system:kcp:logical-cluster-admin"),
		"an external manager of clusters":  as("x", "system:kcp:external-logical-cluster-admin"),
		"an initializer":                   as("x", "system:kcp:initializer:root:universal"),
		"bob":                              as("bob"),
		"the loopback user":                as("system:apiserver"),
		"bob with the scope of b":          extra(as("bob"), "authentication.kcp.io/scopes", "cluster:"+s.b),
		"bob from b":                       extra(as("bob"), "authentication.kcp.io/cluster-name", s.b),
		"bob's warrant":                    extra(as("x"), "authorization.kcp.io/warrant", warrant("bob")),
		"a warrant of masters":             extra(as("x"), "authorization.kcp.io/warrant", warrant("bob", "system:masters")),
		"a warrant of admins":              extra(as("x"), "authorization.kcp.io/warrant", warrant("bob", "system:kcp:admin")),
		"the account of b":                 extra(as("system:serviceaccount:default:robot"), "authentication.kcp.io/cluster-name", s.b),
		"the account of b, by its name":    as("system:kcp:serviceaccount:" + s.b + ":default:robot"),
		"a warrant for the account of b":   extra(as("x"), "authorization.kcp.io/warrant", robotOfB),
		"an unsaid account":                as("system:serviceaccount:default:robot"),
		"the people of b":                  as("x", "system:cluster:"+s.b),
		"system:masters in odd case":       {"impersonate-user": {"x"}, "IMPERSONATE-GROUP": {"system:masters"}},
		"system:masters through the proxy": {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}, "X-Remote-Group": {"system:masters"}},
	} {
		for _, cluster := range []string{s.b, "system:admin", "*"} {
			for _, base := range s.doors() {
				for _, who := range []*person{s.admin, s.robot} {
					got := s.try(t, who, base, request{path: "/clusters/" + cluster + treasurePath, header: h})
					if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s as %s in %s: %d %.300s", who.name, name, cluster, got.status, got.body)
					}
				}
			}
		}
	}
	// Inside of a any identity may be impersonated, but its permissions end at a: a workspace type of b that only bob
	// may use is refused.
	create := func(h http.Header) answer {
		return s.do(t, s.admin, s.a, request{method: http.MethodPost, path: workspacesPath + "?dryRun=All", header: h,
			body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"generateName":"stolen-"},"spec":{"type":{"name":"private","path":"root:b"}}}`})
	}
	for name, h := range map[string]http.Header{
		"alice herself":                 nil,
		"bob":                           as("bob", "system:authenticated"),
		"bob's warrant":                 extra(as("alice", "system:authenticated"), "authorization.kcp.io/warrant", warrant("bob")),
		"a warrant inside of a warrant": extra(as("alice", "system:authenticated"), "authorization.kcp.io/warrant", `{"user":"x","extra":{"authorization.kcp.io/warrant":["{\"user\":\"bob\"}"]}}`),
		"the partner's people":          as("alice", "system:authenticated", "system:cluster:partner"),
		"one of the partner's people":   extra(as("alice", "system:authenticated"), "authentication.kcp.io/cluster-name", "partner"),
		"the partner's account":         extra(as("system:serviceaccount:default:robot"), "authentication.kcp.io/cluster-name", "partner"),
		"its name":                      as("system:kcp:serviceaccount:partner:default:robot", "system:authenticated"),
		"a warrant for it":              extra(as("alice", "system:authenticated"), "authorization.kcp.io/warrant", strings.ReplaceAll(robotOfB, s.b, "partner")),
		"a warrant of its people":       extra(as("alice", "system:authenticated"), "authorization.kcp.io/warrant", `{"user":"alice","groups":["system:cluster:partner"]}`),
	} {
		if got := create(h); got.status != http.StatusForbidden {
			t.Errorf("as %s a workspace of b's private type: %d %.400s", name, got.status, got.body)
		}
	}
}
