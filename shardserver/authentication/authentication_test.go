package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
	"github.com/atoll-dev/atoll/shardserver/tokenkeys"
)

const defaultIssuer = "https://kcp.default.svc"

var (
	clusterA = logicalcluster.MustParseName("a")
	clusterB = logicalcluster.MustParseName("b")
	clusterC = logicalcluster.MustParseName("c")
	clusterD = logicalcluster.MustParseName("d")
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serviceAccountEnv is a shard with the service account ns/sa in A and in B, and an authenticator of their tokens.
type serviceAccountEnv struct {
	shard   *shardtest.Shard
	request authenticator.Request
	key     *ecdsa.PrivateKey
	// remoteKey is that of another shard, shardKeys are the public keys of both.
	remoteKey *ecdsa.PrivateKey
	shardKeys serviceaccount.PublicKeysGetter
}

func newServiceAccountEnv(t *testing.T) *serviceAccountEnv {
	t.Helper()
	shard := shardtest.Start(t)
	a := &serviceAccountEnv{shard: shard, key: newKey(t), remoteKey: newKey(t)}
	for _, cluster := range []logicalcluster.Name{clusterA, clusterB} {
		a.createAccount(t, cluster)
	}
	keys, err := serviceaccount.StaticPublicKeysGetter([]any{newKey(t).Public(), a.key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if a.shardKeys, err = serviceaccount.StaticPublicKeysGetter([]any{a.key.Public(), a.remoteKey.Public()}); err != nil {
		t.Fatal(err)
	}
	a.request, err = New(t.Context(), Config{
		Registry:  shard.Registry,
		ShardKeys: a.shardKeys,
		Stock: kubeauthenticator.Config{
			ServiceAccountIssuers:          []string{defaultIssuer},
			ServiceAccountPublicKeysGetter: keys,
			APIAudiences:                   authenticator.Audiences{defaultIssuer},
			TokenSuccessCacheTTL:           0, // so that deletions take effect immediately
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *serviceAccountEnv) createAccount(t *testing.T, cluster logicalcluster.Name) {
	t.Helper()
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}}
	if err := a.shard.Create(logicalcluster.With(t.Context(), cluster), shardtest.Masters, account); err != nil {
		t.Fatal(err)
	}
}

// account reads the stored service account of a logical cluster.
func (a *serviceAccountEnv) account(t *testing.T, cluster logicalcluster.Name) core.ServiceAccount {
	t.Helper()
	stored, err := newTokenGetter(a.shard.Registry).accounts.GetLatest(logicalcluster.With(t.Context(), cluster), "ns", "sa")
	if err != nil {
		t.Fatal(err)
	}
	return *stored
}

// token signs a token for the service account of one logical cluster, generated in another.
func (a *serviceAccountEnv) token(t *testing.T, owner, cluster logicalcluster.Name, expires time.Duration, audiences ...string) string {
	t.Helper()
	generator, err := NewTokenGenerator(defaultIssuer, a.key)
	if err != nil {
		t.Fatal(err)
	}
	claims, private, err := serviceaccount.Claims(a.account(t, owner), nil, nil, nil, nil, nil, int64(expires.Seconds()), 0, audiences, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := generator.GenerateToken(logicalcluster.With(t.Context(), cluster), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// authenticateToken authenticates a token in a request to a logical cluster.
func authenticateToken(ctx context.Context, request authenticator.Request, token string) (user.Info, bool, error) {
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	response, ok, err := request.AuthenticateRequest(req)
	if !ok {
		return nil, false, err
	}
	return response.User, ok, err
}

func TestServiceAccountTokenCluster(t *testing.T) {
	a := newServiceAccountEnv(t)
	inB := logicalcluster.With(t.Context(), clusterB)
	u, ok, err := authenticateToken(inB, a.request, a.token(t, clusterA, clusterA, time.Hour, defaultIssuer))
	if err != nil || !ok {
		t.Fatalf("a good token sent to another logical cluster: %v, %v", ok, err)
	}
	if u.GetName() != "system:serviceaccount:ns:sa" || cmp.Diff([]string{"a"}, u.GetExtra()["authentication.kcp.io/cluster-name"]) != "" {
		t.Errorf("the token authenticates %s of %v", u.GetName(), u.GetExtra())
	}
	if u.GetUID() != string(a.account(t, clusterA).UID) {
		t.Errorf("the account of A has UID %q", u.GetUID())
	}

	forged, err := serviceaccount.JWTTokenGenerator(defaultIssuer, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := serviceaccount.JWTTokenGenerator(defaultIssuer, a.remoteKey)
	if err != nil {
		t.Fatal(err)
	}
	stock, err := serviceaccount.JWTTokenGenerator(defaultIssuer, a.key)
	if err != nil {
		t.Fatal(err)
	}
	claims, private, err := serviceaccount.Claims(a.account(t, clusterA), nil, nil, nil, nil, nil, 3600, 0, []string{defaultIssuer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := withClusterClaim(private, clusterA)
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := forged.GenerateToken(t.Context(), claims, bound)
	if err != nil {
		t.Fatal(err)
	}
	signedByRemote, err := remote.GenerateToken(t.Context(), claims, bound)
	if err != nil {
		t.Fatal(err)
	}
	withoutCluster, err := stock.GenerateToken(t.Context(), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	wildcardClaims, err := withClusterClaim(private, logicalcluster.Wildcard)
	if err != nil {
		t.Fatal(err)
	}
	wildcardToken, err := stock.GenerateToken(t.Context(), claims, wildcardClaims)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"service account of A with the cluster B":            a.token(t, clusterA, clusterB, time.Hour, defaultIssuer),
		"service account that does not exist in the cluster": a.token(t, clusterA, logicalcluster.Root, time.Hour, defaultIssuer),
		"token signed with another key":                      unsigned,
		"token signed with the key of another shard":         signedByRemote,
		"token without a logical cluster":                    withoutCluster,
		"token of the wildcard cluster":                      wildcardToken,
		"token for another audience":                         a.token(t, clusterA, clusterA, time.Hour, "https://other.example"),
		"expired token":                                      a.token(t, clusterA, clusterA, -time.Hour, defaultIssuer),
	} {
		t.Run("rejects "+name, func(t *testing.T) {
			if u, ok, err := authenticateToken(logicalcluster.With(t.Context(), clusterA), a.request, token); ok || err == nil {
				t.Errorf("accepted %v", u)
			}
		})
	}
}

func TestTokenRevocation(t *testing.T) {
	a := newServiceAccountEnv(t)
	tokenOfA := a.token(t, clusterA, clusterA, time.Hour, defaultIssuer)
	tokenOfB := a.token(t, clusterB, clusterB, time.Hour, defaultIssuer)
	a.shard.Delete(t, clusterA, core.Resource("serviceaccounts"), "ns", "sa")
	if _, ok, _ := authenticateToken(t.Context(), a.request, tokenOfA); ok {
		t.Error("the token of the deleted account of A was accepted")
	}
	if _, ok, err := authenticateToken(t.Context(), a.request, tokenOfB); !ok {
		t.Errorf("the token of the account of B: %v", err)
	}
}

// TestTokensOfEarlierShards: A has been on the shard of remoteKey before, B has not.
func TestTokensOfEarlierShards(t *testing.T) {
	a := newServiceAccountEnv(t)
	remote := a.shardKeys.GetPublicKeys(t.Context(), "")[1:]
	handedOver := tokenkeys.HandOver("", tokenkeys.Shard{Keys: remote}, time.Hour, time.Now())
	clusters := map[string]logicalcluster.Name{"moved here": clusterA, "moved away": clusterC, "moved here long ago": clusterD}
	for name, annotations := range map[string]map[string]string{
		"moved here":          {corev1alpha1.TokenKeysAnnotationKey: handedOver},
		"moved away":          {corev1alpha1.TokenKeysAnnotationKey: handedOver, corev1alpha1.MovedToAnnotationKey: "beta"},
		"moved here long ago": {corev1alpha1.TokenKeysAnnotationKey: tokenkeys.HandOver("", tokenkeys.Shard{Keys: remote}, time.Hour, time.Now().Add(-2*time.Hour))},
	} {
		a.shard.CreateCluster(t, clusters[name], annotations)
	}
	a.shard.CreateCluster(t, clusterB, nil)
	arriving := logicalcluster.MustParseName("arriving")
	a.shard.CreateCluster(t, arriving, map[string]string{corev1alpha1.ArrivingAnnotationKey: "uid"})
	for _, cluster := range []logicalcluster.Name{clusterC, clusterD, arriving} {
		a.createAccount(t, cluster)
	}
	for cluster, want := range map[logicalcluster.Name]bool{clusterA: true, clusterC: false, arriving: false} {
		if here, err := newClusterReader(a.shard.Registry).isHere(t.Context(), cluster); err != nil || here != want {
			t.Errorf("this shard decides about tokens of %s: %t (%v)", cluster, here, err)
		}
	}
	sign := func(key *ecdsa.PrivateKey, cluster logicalcluster.Name) string {
		signer := *a
		signer.key = key
		return signer.token(t, cluster, cluster, time.Hour, defaultIssuer)
	}
	for name, tc := range map[string]struct {
		token string
		want  bool
	}{
		"moved here, signed by the earlier shard":        {sign(a.remoteKey, clusterA), true},
		"moved here, signed by this shard":               {sign(a.key, clusterA), true},
		"moved here, signed by another shard":            {sign(newKey(t), clusterA), false},
		"never moved, signed by the shard that A was on": {sign(a.remoteKey, clusterB), false},
		"never moved, signed by this shard":              {sign(a.key, clusterB), true},
		"moved away, signed by this shard":               {sign(a.key, clusterC), false},
		"moved away, signed by the earlier shard":        {sign(a.remoteKey, clusterC), false},
		"moved long ago, signed by the earlier shard":    {sign(a.remoteKey, clusterD), false},
		"moved long ago, signed by this shard":           {sign(a.key, clusterD), true},
		"a copy that arrives, signed by this shard":      {sign(a.key, arriving), false},
	} {
		u, ok, err := authenticateToken(logicalcluster.With(t.Context(), clusterB), a.request, tc.token)
		if ok != tc.want || (err == nil) != tc.want {
			t.Errorf("%s: got %v (%v), %v", name, ok, u, err)
		}
	}
	token := sign(a.remoteKey, clusterA)
	a.shard.Delete(t, clusterA, core.Resource("serviceaccounts"), "ns", "sa")
	if _, ok, _ := authenticateToken(t.Context(), a.request, token); ok {
		t.Error("the token of the earlier shard for a deleted account was accepted")
	}
}

// TestRefusedRemoteToken: a token that its own shard refuses causes one request there, however often it is sent.
func TestRefusedRemoteToken(t *testing.T) {
	a := newServiceAccountEnv(t)
	var reviews atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reviews.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer proxy.Close()
	remote := newRemoteServiceAccountAuthenticator(kubeauthenticator.Config{
		ServiceAccountIssuers: []string{defaultIssuer}, APIAudiences: authenticator.Audiences{defaultIssuer},
	}, a.shardKeys, a.shard.Registry, &rest.Config{Host: proxy.URL})
	generator, err := NewTokenGenerator(defaultIssuer, a.remoteKey)
	if err != nil {
		t.Fatal(err)
	}
	claims, private, err := serviceaccount.Claims(a.account(t, clusterA), nil, nil, nil, nil, nil, 3600, 0, []string{defaultIssuer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := generator.GenerateToken(logicalcluster.With(t.Context(), logicalcluster.MustParseName("elsewhere")), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, ok, err := remote.AuthenticateToken(t.Context(), token); ok || err == nil {
			t.Fatalf("accepted: %v", err)
		}
	}
	if got := reviews.Load(); got != 1 {
		t.Errorf("%d reviews", got)
	}
}

func checkClaims(t *testing.T, token, issuer string, cluster logicalcluster.Name) {
	t.Helper()
	if got, ok := serviceaccounttokens.ClusterClaim(token); !ok || got != cluster {
		t.Errorf("the token is of the logical cluster %q", got)
	}
	if got, ok := issuers.UnverifiedIssuer(token); !ok || got != issuer {
		t.Errorf("the token is of the issuer %q", got)
	}
}

func TestTokenGenerator(t *testing.T) {
	generator, err := NewTokenGenerator(defaultIssuer, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	claims, private, err := serviceaccount.Claims(core.ServiceAccount{}, nil, nil, nil, nil, nil, 3600, 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{
		"without a logical cluster": t.Context(),
		"for all logical clusters":  logicalcluster.With(t.Context(), logicalcluster.Wildcard),
	} {
		if token, err := generator.GenerateToken(ctx, claims, private); err == nil {
			t.Errorf("signed %s %s", token, name)
		}
	}
	token, err := generator.GenerateToken(logicalcluster.With(t.Context(), clusterA), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	checkClaims(t, token, defaultIssuer, clusterA)
	claims, private = serviceaccount.LegacyClaims(corev1.ServiceAccount{}, corev1.Secret{})
	if token, err = generator.GenerateToken(logicalcluster.With(t.Context(), clusterA), claims, private); err != nil {
		t.Fatal(err)
	}
	checkClaims(t, token, serviceaccount.LegacyIssuer, clusterA)
}

func TestInClusterRewrite(t *testing.T) {
	generator, err := NewTokenGenerator(defaultIssuer, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(private any) string {
		claims, _, err := serviceaccount.Claims(core.ServiceAccount{}, nil, nil, nil, nil, nil, 3600, 0, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := generator.GenerateToken(logicalcluster.With(t.Context(), clusterA), claims, private)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	bound := sign(map[string]any{"kubernetes.io": map[string]string{"namespace": "ns"}})
	legacy := sign(map[string]any{"kubernetes.io/serviceaccount/namespace": "ns"})
	for name, tc := range map[string]struct {
		path, token string
		header      http.Header
		want        string
	}{
		"bound token":                                 {"/api/v1", bound, nil, "/clusters/a/api/v1"},
		"token of a secret":                           {"/api/v1", legacy, nil, "/clusters/a/api/v1"},
		"path with a logical cluster":                 {"/clusters/b/api", bound, nil, "/clusters/b/api"},
		"path of a virtual workspace":                 {"/services/x", bound, nil, "/services/x"},
		"client with the header for sharded requests": {"/api", bound, http.Header{ShardedRequestHeader: {"true"}}, "/api"},
		"token that is not a JSON web token":          {"/api", "abc", nil, "/api"},
		"no token":                                    {"/api", "", nil, "/api"},
		"metrics of the shard":                        {"/metrics", bound, nil, "/metrics"},
		"health of the shard":                         {"/livez/ping", bound, nil, "/livez/ping"},
		"path with the prefix of metrics":             {"/metricsx", bound, nil, "/clusters/a/metricsx"},
	} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			handler := WithInClusterRewrite(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req }))
			req := httptest.NewRequest(http.MethodGet, tc.path+"?watch=1", nil)
			for key, values := range tc.header {
				req.Header[key] = values
			}
			if tc.token != "" {
				req.Header.Set("Authorization", "Bearer "+tc.token)
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if got.URL.Path != tc.want || got.RequestURI != tc.want+"?watch=1" || req.URL.Path != tc.path {
				t.Errorf("got %s (%s)", got.URL.Path, got.RequestURI)
			}
		})
	}
}

// proxyCertificate returns a certificate authority and a client certificate that it signed.
func proxyCertificate(t *testing.T, name string) (ca, client *x509.Certificate) {
	t.Helper()
	key := newKey(t)
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "proxies"}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, newKey(t).Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	client, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return ca, client
}

// staticCA is a CA content provider that never changes.
type staticCA struct {
	dynamiccertificates.CAContentProvider
	pool *x509.CertPool
}

func (c staticCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: c.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

func TestRequestHeaders(t *testing.T) {
	ca, client := proxyCertificate(t, "front-proxy")
	_, untrusted := proxyCertificate(t, "front-proxy")
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	request, err := New(t.Context(), Config{Stock: kubeauthenticator.Config{
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   staticCA{pool: pool},
			AllowedClientNames:  headerrequest.StaticStringSlice{"front-proxy"},
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		},
		Anonymous: apiserver.AnonymousAuthConfig{Enabled: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	send := func(certificate *x509.Certificate) (user.Info, error) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		req.TLS = &tls.ConnectionState{}
		if certificate != nil {
			req.TLS.PeerCertificates = []*x509.Certificate{certificate}
		}
		req.Header.Set("X-Remote-User", "alice")
		for _, group := range []string{
			"staff", "system:masters", "system:kcp:admin", "system:kcp:external-logical-cluster-admin",
			"system:kcp:logical-cluster-admin", "system:kcp:initializer:root:a", "system:kcp:terminator:root:a", "system:kcp:shard", "system:kcp:cache",
		} {
			req.Header.Add("X-Remote-Group", group)
		}
		req.Header.Set("X-Remote-Extra-Authentication.kcp.io%2fscopes", "cluster:a")
		response, ok, err := request.AuthenticateRequest(req)
		if !ok {
			return nil, err
		}
		return response.User, err
	}

	u, err := send(client)
	if err != nil {
		t.Fatal(err)
	}
	want := &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{"staff", "system:kcp:admin", "system:kcp:external-logical-cluster-admin", "system:authenticated"},
		Extra:  map[string][]string{"authentication.kcp.io/scopes": {"cluster:a"}},
	}
	if diff := cmp.Diff(user.Info(want), u); diff != "" {
		t.Error(diff)
	}
	if u, err := send(untrusted); err == nil {
		t.Errorf("a certificate of another CA yields %v", u)
	}
	if u, err := send(nil); err != nil || u.GetName() != user.Anonymous {
		t.Errorf("headers without a certificate yield %v, %v", u, err)
	}
}

func TestAdminTokensAndAnonymous(t *testing.T) {
	tokens := map[string]*user.DefaultInfo{"secret": {Name: "kcp-admin", Groups: []string{"system:kcp:admin"}}}
	for name, tc := range map[string]struct {
		anonymous bool
		token     string
		want      string // empty: not authenticated
		fails     bool   // with an error, as for invalid credentials
	}{
		"known token":                    {true, "secret", "kcp-admin", false},
		"invalid token is not anonymous": {true, "guess", "", true},
		"no token is anonymous":          {true, "", user.Anonymous, false},
		"no token, anonymous disabled":   {false, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := New(t.Context(), Config{AdminTokens: tokens, Stock: kubeauthenticator.Config{Anonymous: apiserver.AnonymousAuthConfig{Enabled: tc.anonymous}}})
			if err != nil {
				t.Fatal(err)
			}
			u, ok, err := authenticateToken(t.Context(), request, tc.token)
			if ok != (tc.want != "") || (err != nil) != tc.fails || (ok && u.GetName() != tc.want) {
				t.Errorf("got %v, %v, %v", u, ok, err)
			}
		})
	}
}

func TestRequesterIsRecordedOnce(t *testing.T) {
	tokens := map[string]*user.DefaultInfo{"one": {Name: "one"}, "two": {Name: "two"}}
	request, err := New(t.Context(), Config{AdminTokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	requester.With(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if _, ok := requester.From(req.Context()); ok {
			t.Error("there is a requester before authentication")
		}
		for _, token := range []string{"one", "two"} { // the second as in a token review
			if _, _, err := authenticateToken(req.Context(), request, token); err != nil {
				t.Error(err)
			}
		}
		if u, ok := requester.From(req.Context()); !ok || u.GetName() != "one" {
			t.Errorf("recorded %v", u)
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}
