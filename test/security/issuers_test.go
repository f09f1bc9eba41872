package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const configurationsPath = "/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations"

// testWorkspaceIssuers has the administrator of workspace a run a token issuer that issues any claim of use to an
// attacker. The tokens must authenticate in the workspaces of one workspace type of a, through the proxy and at the
// shard, and in no other logical cluster.
func testWorkspaceIssuers(t *testing.T, s *env) {
	issuer := issuertest.Start(t)
	authenticator := issuer.Authenticator()
	noPrefix := ""
	authenticator.ClaimMappings.Username.Prefix = &noPrefix // so that a user name can be any name
	jwt, err := json.Marshal(authenticator)
	must(t, err)
	for path, body := range map[string]string{
		configurationsPath: fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceAuthenticationConfiguration","metadata":{"name":"mine"},"spec":{"jwt":[%s]}}`, jwt),
		typesPath: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"mine"},
			"spec":{"extend":{"with":[{"name":"universal","path":"root"}]},"authenticationConfigurations":[{"name":"mine"}]}}`,
	} {
		if got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
	body := fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"mine"},"spec":{%s,"type":{"name":"mine","path":%q}}}`, s.remoteLocation(), s.a)
	if got := s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: workspacesPath, body: body}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.waitReady(t, s.a, "mine")
	child := s.workspaceCluster(t, s.a, "mine")
	binding := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"mine"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}]}`
	if got := s.do(t, s.adminA, child, request{method: http.MethodPost, path: clusterBindings, body: binding}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}

	bob := s.newUser(t, "bob of the issuer", nil)
	bob.token = issuer.Token(t, map[string]any{"sub": "bob", "groups": []string{"system:masters", "system:kcp:admin", "system:kcp:logical-cluster-admin"}})
	for name, base := range map[string]string{"shard": s.resolveShardURL(t, child), "proxy": s.proxyURL} {
		shardtesting.Eventually(t, "the token authenticates in the workspace at the "+name, func(context.Context) error {
			if got := s.send(t, bob, base, request{path: "/clusters/" + child + configMapsPath}); got.status != http.StatusOK {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
			return nil
		})
		for _, cluster := range []string{s.a, s.b, "root", "system:admin", "*"} {
			for _, path := range []string{configMapsPath, workspacesPath} {
				if got := s.send(t, bob, base, request{path: "/clusters/" + cluster + path}); got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
					t.Errorf("%s of %s at the %s: %d %.200s", path, cluster, name, got.status, got.body)
				}
			}
		}
		for _, claimed := range []string{"system:admin", "system:serviceaccount:default:builder", "system:kcp:bootstrapper", ""} {
			user := s.newUser(t, claimed, nil)
			user.token = issuer.Token(t, map[string]any{"sub": claimed})
			if got := s.send(t, user, base, request{path: "/clusters/" + child + configMapsPath}); got.status != http.StatusUnauthorized {
				t.Errorf("a token for %q at the %s: %d %.200s", claimed, name, got.status, got.body)
			}
		}
		review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		got := s.send(t, bob, base, request{method: http.MethodPost, path: "/clusters/" + child + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: review})
		if got.status != http.StatusCreated || strings.Contains(got.body, "system:masters") || strings.Contains(got.body, "system:kcp") || !strings.Contains(got.body, `["cluster:`+child+`"]`) {
			t.Errorf("SelfSubjectReview at the %s: %d %s", name, got.status, got.body)
		}
	}
}
