package shardserver_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
)

// testTokenVerification verifies a token with the documents of its issuer only.
func testTokenVerification(t *testing.T, s *tenantEnv) {
	const configuration = "/.well-known/openid-configuration"
	token := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}})
	own := s.a.token(t, "robot", authenticationv1.TokenRequestSpec{})
	for what, client := range map[string]kubernetes.Interface{
		"in the workspace": s.withToken(t, own, s.a.cluster),
		"at the bare host": s.withToken(t, own, ""),
	} {
		var issuer struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		readJSON(t, client, configuration, &issuer)
		keys, err := url.Parse(issuer.Keys)
		if err != nil || issuer.Issuer != "https://kcp.default.svc" || "https://"+keys.Host != s.host {
			t.Fatalf("%s: issuer %q with keys at %q (%v)", what, issuer.Issuer, issuer.Keys, err)
		}
		var set jose.JSONWebKeySet
		readJSON(t, client, keys.Path, &set)
		signed, err := jwt.ParseSigned(token)
		if err != nil {
			t.Fatal(err)
		}
		var claims jwt.Claims
		if err := signed.Claims(set.Keys[0].Public(), &claims); err != nil || claims.Issuer != issuer.Issuer || !claims.Audience.Contains("vault") {
			t.Errorf("%s: claims %+v: %v", what, claims, err)
		}
	}
	for _, path := range []string{configuration, "/openid/v1/jwks"} {
		if err := s.withToken(t, own, s.b.cluster).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("%s by an account of another workspace: got %v, want Forbidden", path, err)
		}
		if err := s.withToken(t, "", s.a.cluster).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("%s anonymously: got %v, want Forbidden", path, err)
		}
	}
}

// readJSON decodes the JSON at a path.
func readJSON(t *testing.T, client kubernetes.Interface, path string, into any) {
	t.Helper()
	body, err := client.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Raw()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v in %s", path, err, body)
	}
}
