// Package issuertest runs OpenID Connect issuers for tests: a TLS server with a discovery document and keys, and tokens
// signed with them. It must not be used outside of tests.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// Audience is the default audience of tokens.
const Audience = "atoll-test"

// Issuer is a running issuer.
type Issuer struct {
	// URL is the issuer URL.
	URL string
	// CA is the PEM bundle of its server's CA.
	CA string
	// Discoveries and Fetches count the requests for the discovery document and the keys.
	Discoveries, Fetches atomic.Int64
	// Broken makes the server respond with an error.
	Broken atomic.Bool

	key    *ecdsa.PrivateKey
	signIn atomic.Pointer[SignIn]
}

// Start runs an issuer until the end of the test.
func Start(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.Discoveries.Add(1)
		i.respond(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"scopes_supported": []string{"openid", "offline_access"},
		})
	})
	mux.HandleFunc("/authorize", i.withSignIn((*SignIn).authorize))
	mux.HandleFunc("/token", i.withSignIn((*SignIn).token))
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.Fetches.Add(1)
		i.respond(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return i
}

func (i *Issuer) withSignIn(serve func(*SignIn, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s := i.signIn.Load(); s != nil {
			serve(s, w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// respond writes a response that pages of all origins can read.
func (i *Issuer) respond(w http.ResponseWriter, body any) {
	if i.Broken.Load() {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_ = json.NewEncoder(w).Encode(body)
}

// Authenticator returns a configuration for the issuer's tokens: the user name is the claim sub with a prefix, groups
// are the claim groups.
func (i *Issuer) Authenticator() tenancyv1alpha1.JWTAuthenticator {
	prefix, none := "oidc:", ""
	return tenancyv1alpha1.JWTAuthenticator{
		Issuer: tenancyv1alpha1.Issuer{URL: i.URL, CertificateAuthority: i.CA, Audiences: []string{Audience}},
		ClaimMappings: tenancyv1alpha1.ClaimMappings{
			Username: tenancyv1alpha1.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix},
			Groups:   tenancyv1alpha1.PrefixedClaimOrExpression{Claim: "groups", Prefix: &none},
		},
	}
}

// Token signs claims. Issuer, audience and expiry have defaults; nil removes a claim.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	return i.TokenSignedWith(t, i.key, claims)
}

// TokenSignedWith is Token with another key than the issuer's, but the same key ID.
func (i *Issuer) TokenSignedWith(t testing.TB, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": i.URL, "aud": Audience, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	options := (&jose.SignerOptions{}).WithHeader("kid", "one")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
