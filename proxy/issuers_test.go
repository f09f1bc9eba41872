package proxy_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
	"github.com/atoll-dev/atoll/proxy/options"
)

// TestWorkspaceAuthentication: the workspace type is on one shard, its workspaces are on another.
func TestWorkspaceAuthentication(t *testing.T) {
	issuer := issuertest.Start(t)
	i := newEnv(t, func(_ *env, o *options.Options) {
		o.FeatureGates = map[string]bool{"WorkspaceAuthentication": true}
	})
	ada := http.Header{"Authorization": {"Bearer " + issuer.Token(t, map[string]any{"sub": "ada", "groups": []string{"dev", "system:masters", "system:kcp:admin"}})}}
	anonymous := i.client(nil)

	// The proxy verifies no tokens yet: a shard may accept this one.
	if code, got, _ := i.get(anonymous, "/clusters/team1/api", ada); code != http.StatusOK || got.Header.Get("X-Remote-User") != "" || got.Header.Get("Authorization") == "" {
		t.Fatalf("before there is a configuration: %d, %+v", code, got)
	}

	i.alpha.putTypedCluster("team1", "root:org:sso")
	i.root.put("workspacetypes", "org1", "sso", map[string]any{"spec": map[string]any{"authenticationConfigurations": []any{map[string]any{"name": "corp"}, map[string]any{"name": "missing"}}}})
	i.root.put("workspaceauthenticationconfigurations", "org1", "corp", map[string]any{"spec": map[string]any{"jwt": []any{issuer.Authenticator()}}})
	i.eventually("the token is accepted in an existing workspace", func() bool {
		code, got, _ := i.get(anonymous, "/clusters/root:org:team/api", ada)
		return code == http.StatusOK && got.Header.Get("X-Remote-User") == "oidc:ada"
	})

	for _, path := range []string{"/clusters/root:org:team/api", "/clusters/team1/api", "/e/team1/x/y"} {
		code, got, body := i.get(anonymous, path, ada)
		groups := got.Header.Values("X-Remote-Group")
		if code != http.StatusOK || got.Header.Get("X-Remote-User") != "oidc:ada" || !slices.Equal(groups, []string{"dev", "system:authenticated"}) ||
			got.Header.Get("X-Remote-Extra-Authentication.kcp.io%2fscopes") != "cluster:team1" || got.Header.Get("X-Remote-Extra-Authentication.kcp.io%2fcluster-Name") != "cluster:team1"[len("cluster:"):] ||
			got.Header.Get("Authorization") != "" {
			t.Errorf("%s: %d, %v, %s", path, code, got.Header, body)
		}
	}
	for _, path := range []string{"/clusters/root/api", "/clusters/org1/api", "/services/clusters/team1/x"} {
		if code, got, _ := i.get(anonymous, path, ada); code != http.StatusOK || got.Header.Get("X-Remote-User") != "" {
			t.Errorf("%s accepts the token: %d, %v", path, code, got.Header)
		}
	}
	if code, _, _ := i.get(anonymous, "/clusters/team1/api", nil); code != http.StatusUnauthorized {
		t.Errorf("no credentials, where tokens are verified: %d", code)
	}
	forged := http.Header{"Authorization": {"Bearer " + issuertest.Start(t).Token(t, map[string]any{"sub": "ada", "iss": issuer.URL})}}
	if code, _, _ := i.get(anonymous, "/clusters/team1/api", forged); code != http.StatusUnauthorized {
		t.Errorf("a forged token: %d", code)
	}
	if code, got, _ := i.get(i.clientFor("bob", "devs"), "/clusters/team1/api", nil); code != http.StatusOK || got.Header.Get("X-Remote-User") != "bob" {
		t.Errorf("a certificate: %d, %+v", code, got)
	}

	i.root.remove("workspaceauthenticationconfigurations", "org1", "corp")
	i.eventually("the token is not verified once the configuration is deleted", func() bool {
		code, got, _ := i.get(anonymous, "/clusters/team1/api", ada)
		return code == http.StatusOK && got.Header.Get("X-Remote-User") == ""
	})
}

// TestWorkspaceAuthenticationDisabledByDefault: without the feature gate, configurations have no effect.
func TestWorkspaceAuthenticationDisabledByDefault(t *testing.T) {
	issuer := issuertest.Start(t)
	i := newEnv(t)
	i.alpha.putTypedCluster("team1", "root:org:sso")
	i.root.put("workspacetypes", "org1", "sso", map[string]any{"spec": map[string]any{"authenticationConfigurations": []any{map[string]any{"name": "corp"}}}})
	i.root.put("workspaceauthenticationconfigurations", "org1", "corp", map[string]any{"spec": map[string]any{"jwt": []any{issuer.Authenticator()}}})
	header := http.Header{"Authorization": {"Bearer " + issuer.Token(t, map[string]any{"sub": "ada"})}}
	if code, got, _ := i.get(i.client(nil), "/clusters/team1/api", header); code != http.StatusOK || got.Header.Get("X-Remote-User") != "" {
		t.Errorf("got %d, %+v", code, got)
	}
	if discoveries := issuer.Discoveries.Load(); discoveries != 0 {
		t.Errorf("%d discovery requests to the issuer", discoveries)
	}
}
