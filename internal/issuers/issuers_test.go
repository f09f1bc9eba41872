package issuers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/component-base/metrics/legacyregistry"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var testCluster = logicalcluster.MustParseName("here")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAuthenticate(t *testing.T) {
	issuer := issuertest.Start(t)
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain := issuer.Authenticator()
	unprefixed := issuer.Authenticator()
	unprefixed.ClaimMappings.Username.Prefix = new(string)
	withExtra := issuer.Authenticator()
	withExtra.ClaimMappings.Extra = []tenancyv1alpha1.ExtraMapping{
		{Key: "authentication.kcp.io/scopes", ValueExpression: `"cluster:there"`},
		{Key: "authorization.kcp.io/warrant", ValueExpression: `'{"user":"root","groups":["system:masters"]}'`},
		{Key: "example.com/kcp.io", ValueExpression: `"x"`},
		{Key: "example.com/team", ValueExpression: `"blue"`},
	}
	scopes := []string{"cluster:here"}
	for description, tc := range map[string]struct {
		by     tenancyv1alpha1.JWTAuthenticator
		token  string
		name   string // empty: the token is refused
		groups []string
		extra  map[string][]string
	}{
		"a user of the issuer, for this logical cluster": {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "groups": []string{"dev"}}),
			name: "oidc:ada", groups: []string{"dev", "system:authenticated"}},
		"groups of the system are dropped": {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "groups": []string{"system:masters", "dev", "system:kcp:admin"}}),
			name: "oidc:ada", groups: []string{"dev", "system:authenticated"}},
		"a name of the system is refused": {by: unprefixed, token: issuer.Token(t, map[string]any{"sub": "system:admin"})},
		"an empty name is refused":        {by: unprefixed, token: issuer.Token(t, map[string]any{"sub": ""})},
		"attributes of kcp are dropped": {by: withExtra, token: issuer.Token(t, map[string]any{"sub": "ada"}),
			name: "oidc:ada", groups: []string{"system:authenticated"}, extra: map[string][]string{"example.com/team": {"blue"}}},
		"another audience is refused":      {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "aud": "other"})},
		"several audiences, one of them":   {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "aud": []string{"x", issuertest.Audience}}), name: "oidc:ada", groups: []string{"system:authenticated"}},
		"an expired token is refused":      {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "exp": time.Now().Add(-time.Hour).Unix()})},
		"another key is refused":           {by: plain, token: issuer.TokenSignedWith(t, otherKey, map[string]any{"sub": "ada"})},
		"a token of another issuer":        {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "iss": "https://other.example.com"})},
		"an opaque token":                  {by: plain, token: "opaque"},
		"distributed claims are not taken": {by: plain, token: issuer.Token(t, map[string]any{"sub": "ada", "_claim_names": map[string]string{"groups": "a"}, "_claim_sources": map[string]any{"a": map[string]string{"endpoint": "https://metadata.example.com"}}})},
	} {
		t.Run(description, func(t *testing.T) {
			authenticators := issuers.New(t.Context(), nil, nil)
			response, ok, err := authenticators.Authenticate(t.Context(), testCluster, []tenancyv1alpha1.JWTAuthenticator{tc.by}, tc.token)
			if tc.name == "" {
				if ok {
					t.Errorf("got %+v, %v", response.User, err)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("got %v, %v", ok, err)
			}
			want := map[string][]string{"authentication.kcp.io/scopes": scopes, "authentication.kcp.io/cluster-name": {"here"}}
			maps.Copy(want, tc.extra)
			u := response.User
			if u.GetName() != tc.name || !slices.Equal(u.GetGroups(), tc.groups) || !maps.EqualFunc(u.GetExtra(), want, slices.Equal) {
				t.Errorf("got %q %q %q, want %q %q %q", u.GetName(), u.GetGroups(), u.GetExtra(), tc.name, tc.groups, want)
			}
		})
	}
}

func TestRequiredAudiences(t *testing.T) {
	issuer := issuertest.Start(t)
	configs := []tenancyv1alpha1.JWTAuthenticator{issuer.Authenticator()}
	authenticators := issuers.New(t.Context(), authenticator.Audiences{"installation"}, nil)
	if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, configs, issuer.Token(t, map[string]any{"sub": "ada"})); ok || err == nil {
		t.Errorf("a token for the issuer's audience only: %v, %v", ok, err)
	}
	both := issuer.Token(t, map[string]any{"sub": "ada", "aud": []string{issuertest.Audience, "installation"}})
	if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, configs, both); !ok || err != nil {
		t.Errorf("a token for both: %v, %v", ok, err)
	}
}

func TestAuthenticatorsAreShared(t *testing.T) {
	issuer := issuertest.Start(t)
	authenticators := issuers.New(t.Context(), nil, nil)
	token := issuer.Token(t, map[string]any{"sub": "ada"})
	for i := range 50 {
		cluster := logicalcluster.MustParseName(fmt.Sprintf("c%d", i))
		response, ok, err := authenticators.Authenticate(t.Context(), cluster, []tenancyv1alpha1.JWTAuthenticator{issuer.Authenticator()}, token)
		if !ok || err != nil || response.User.GetExtra()["authentication.kcp.io/cluster-name"][0] != cluster.String() {
			t.Fatalf("in %s: %v, %v", cluster, ok, err)
		}
	}
	if discoveries, fetches := issuer.Discoveries.Load(), issuer.Fetches.Load(); discoveries != 1 || fetches != 1 {
		t.Errorf("the issuer received %d requests for its document and %d for its keys", discoveries, fetches)
	}
}

func TestDiscoveryFailureIsCached(t *testing.T) {
	broken, healthy := issuertest.Start(t), issuertest.Start(t)
	broken.Broken.Store(true)
	authenticators := issuers.New(t.Context(), nil, nil)
	configs := []tenancyv1alpha1.JWTAuthenticator{broken.Authenticator(), healthy.Authenticator()}
	for range 20 {
		if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, configs, broken.Token(t, map[string]any{"sub": "ada"})); ok || err == nil {
			t.Fatalf("got %v, %v", ok, err)
		}
	}
	if discoveries := broken.Discoveries.Load(); discoveries != 1 {
		t.Errorf("the broken issuer received %d requests", discoveries)
	}
	if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, configs, healthy.Token(t, map[string]any{"sub": "ada"})); !ok || err != nil {
		t.Errorf("the other: %v, %v", ok, err)
	}
}

func TestUnresponsiveIssuer(t *testing.T) {
	release := make(chan struct{})
	unresponsive := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}))
	defer unresponsive.Close()
	defer close(release)
	healthy := issuertest.Start(t)
	config := healthy.Authenticator()
	config.Issuer.DiscoveryURL = unresponsive.URL + "/document"
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	background, cancelBackground := context.WithCancel(t.Context())
	authenticators := issuers.New(background, nil, nil)
	if _, ok, err := authenticators.Authenticate(ctx, testCluster, []tenancyv1alpha1.JWTAuthenticator{config}, healthy.Token(t, map[string]any{"sub": "ada"})); ok || err == nil {
		t.Errorf("got %v, %v", ok, err)
	}
	if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, []tenancyv1alpha1.JWTAuthenticator{healthy.Authenticator()}, healthy.Token(t, map[string]any{"sub": "ada"})); !ok || err != nil {
		t.Errorf("the other: %v, %v", ok, err)
	}
	cancelBackground()
}

func TestMetricsLabelsAreBounded(t *testing.T) {
	authenticators := issuers.New(t.Context(), nil, nil)
	countSeries := func() int {
		gathered, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, family := range gathered {
			n += len(family.Metric)
		}
		return n
	}
	authenticate := func() {
		issuer := issuertest.Start(t)
		if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, []tenancyv1alpha1.JWTAuthenticator{issuer.Authenticator()}, issuer.Token(t, map[string]any{"sub": "ada"})); !ok {
			t.Fatal(err)
		}
	}
	authenticate()
	before := countSeries()
	for range 5 {
		authenticate()
	}
	if after := countSeries(); after != before {
		t.Errorf("%d series after five more issuers, %d before", after, before)
	}
}

func TestTokenIsTriedWithLimitedIssuers(t *testing.T) {
	issuer := issuertest.Start(t)
	broken := issuer.Authenticator()
	broken.Issuer.Audiences = nil
	authenticators := issuers.New(t.Context(), nil, nil)
	for before, accepted := range map[int]bool{63: true, 64: false} {
		configured := append(slices.Repeat([]tenancyv1alpha1.JWTAuthenticator{broken}, before), issuer.Authenticator())
		if _, ok, err := authenticators.Authenticate(t.Context(), testCluster, configured, issuer.Token(t, map[string]any{"sub": "ada"})); ok != accepted {
			t.Errorf("an issuer after %d that cannot be used: accepted %t, %v", before, ok, err)
		}
	}
}

func TestValidate(t *testing.T) {
	issuer := issuertest.Start(t)
	for name, tc := range map[string]struct {
		change func(*tenancyv1alpha1.JWTAuthenticator)
		want   string // substring of the field and the message; empty: valid
	}{
		"what is complete is accepted": {func(*tenancyv1alpha1.JWTAuthenticator) {}, ""},
		"an issuer by plain HTTP is not": {func(a *tenancyv1alpha1.JWTAuthenticator) { a.Issuer.URL = "http://x" },
			"spec.jwt[0].issuer.url"},
		"audiences are needed": {func(a *tenancyv1alpha1.JWTAuthenticator) { a.Issuer.Audiences = nil }, "spec.jwt[0].issuer.audiences"},
		"claim and expression exclude each other": {func(a *tenancyv1alpha1.JWTAuthenticator) { a.ClaimMappings.Username.Expression = "claims.sub" },
			"spec.jwt[0].claimMappings.username"},
		"a user name is needed": {func(a *tenancyv1alpha1.JWTAuthenticator) {
			a.ClaimMappings.Username = tenancyv1alpha1.PrefixedClaimOrExpression{}
		}, "spec.jwt[0].claimMappings.username"},
		"an expression must compile": {func(a *tenancyv1alpha1.JWTAuthenticator) {
			a.ClaimMappings.Username = tenancyv1alpha1.PrefixedClaimOrExpression{Expression: "claims."}
		}, "spec.jwt[0].claimMappings.username.expression"},
		"a bundle must hold a certificate": {func(a *tenancyv1alpha1.JWTAuthenticator) { a.Issuer.CertificateAuthority = "x" },
			"spec.jwt[0].issuer.certificateAuthority"},
	} {
		t.Run(name, func(t *testing.T) {
			config := issuer.Authenticator()
			tc.change(&config)
			errs := issuers.Validate([]tenancyv1alpha1.JWTAuthenticator{config}, field.NewPath("spec", "jwt"))
			if (len(errs) == 0) != (tc.want == "") || !strings.Contains(fmt.Sprint(errs), tc.want) {
				t.Errorf("got %v, want %q", errs, tc.want)
			}
		})
	}
	twice := []tenancyv1alpha1.JWTAuthenticator{issuer.Authenticator(), issuer.Authenticator()}
	if errs := issuers.Validate(twice, field.NewPath("spec", "jwt")); len(errs) != 1 || errs[0].Type != field.ErrorTypeDuplicate {
		t.Errorf("one issuer twice: %v", errs)
	}
}
