package proxy_test

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"

	"github.com/atoll-dev/atoll/proxy/options"
)

// TestIdentityHeadersOfClientsAreDropped sends identity headers in all spellings, as raw bytes over HTTP/1.1, so that
// no client library normalizes them.
func TestIdentityHeadersOfClientsAreDropped(t *testing.T) {
	i := newEnv(t)
	spellings := []string{
		"X-Remote-User: evil", "x-remote-user: evil", "X-REMOTE-USER: evil", "x-rEmOtE-uSeR: evil", "X_Remote_User: evil", "X-Remote_User: evil",
		"X-Remote-Group: evil", "x-remote-group: evil", "X-Remote-Group: a, evil", "X_REMOTE_GROUP: evil",
		"X-Remote-Uid: evil", "x-remote-uid: evil",
		"X-Remote-Extra-Scopes: evil", "x-remote-extra-authentication.kcp.io%2fscopes: evil", "X-Remote-Extra-: evil", "X-Remote-Extra-%61: evil",
		"X_Remote_Extra_Scopes: evil", "X-Remote-Anything: evil",
	}
	// A client may list the proxy's headers as hop-by-hop headers, which are removed.
	removals := []string{"Connection: X-Remote-User, keep-alive", "Connection: x-remote-group", "Connection: close, X-Remote-Extra-Scopes"}

	alice := i.clientCA.pair(t, "alice", "devs")
	for user, pair := range map[string]*tls.Certificate{"alice": &alice, "anonymous": nil} {
		for _, line := range append(spellings, removals...) {
			t.Run(user+"/"+line, func(t *testing.T) {
				got := i.sendRaw(pair, "GET /clusters/root/api HTTP/1.1\r\nHost: kcp.example\r\n"+line+"\r\nImpersonate-User: carol\r\nImpersonate-Group: x\r\n\r\n")
				if strings.Contains(got, "evil") || !strings.HasPrefix(got, "HTTP/1.1 200") {
					t.Errorf("the backend received it: %s", got)
				}
				if !strings.Contains(got, `"Impersonate-User":["carol"]`) || !strings.Contains(got, `"Host":"kcp.example"`) {
					t.Errorf("impersonation headers must be forwarded: %s", got)
				}
				wantUser := map[string]string{"alice": `"X-Remote-User":["alice"]`, "anonymous": ""}[user]
				if !strings.Contains(got, wantUser) || (wantUser == "" && strings.Contains(got, "X-Remote-")) {
					t.Errorf("want %s: %s", wantUser, got)
				}
				if user == "alice" && !strings.Contains(got, `"X-Remote-Group":["devs","system:authenticated"]`) {
					t.Errorf("groups: %s", got)
				}
			})
		}
		t.Run(user+"/a trailer", func(t *testing.T) {
			got := i.sendRaw(pair, "POST /clusters/root/api HTTP/1.1\r\nHost: h\r\nTrailer: X-Remote-User\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Remote-User: evil\r\n\r\n")
			if strings.Contains(got, "evil") || !strings.HasPrefix(got, "HTTP/1.1 200") {
				t.Errorf("got %s", got)
			}
		})
	}
}

// sendRaw sends bytes on a TLS connection and returns the response with its headers.
func (en *env) sendRaw(pair *tls.Certificate, request string) string {
	en.t.Helper()
	conn := en.dial(pair)
	defer conn.Close()
	_, err := io.WriteString(conn, request)
	must(en.t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(en.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(en.t, err)
	return fmt.Sprintf("HTTP/1.1 %d %v %s", res.StatusCode, res.Header, body)
}

func (en *env) dial(pair *tls.Certificate) *tls.Conn {
	en.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(en.serverCA.cert)
	config := &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(en.url, "https://"), config)
	must(en.t, err)
	must(en.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

func TestCustomHeaderNames(t *testing.T) {
	i := newEnv(t, func(i *env, _ *options.Options) {
		i.write("mapping.yaml", []byte(fmt.Sprintf("- path: /\n  backend: %s\n  backend_server_ca: %s\n  proxy_client_cert: %s\n  proxy_client_key: %s\n  user_header: X-User\n  group_header: X-Groups\n  extra_header_prefix: X-Extra-\n",
			i.services.URL, i.file("server-ca.crt"), i.file("header.crt"), i.file("header.key"))))
	})
	status, got, body := i.get(i.clientFor("alice", "devs"), "/any/thing", http.Header{"X-User": {"evil"}, "X-Groups": {"evil"}, "X-Extra-Scopes": {"evil"}, "X-Remote-User": {"evil"}})
	if status != 200 || strings.Contains(body, "evil") || got.Header.Get("X-User") != "alice" || got.Header.Get("X-Groups") != "devs" {
		t.Errorf("%d %s", status, body)
	}
}

// TestUsersOnSharedConnections: the requests of all users share HTTP/2 connections to a shard.
func TestUsersOnSharedConnections(t *testing.T) {
	i := newEnv(t)
	i.get(i.clientFor("first"), "/clusters/root:org:team/api", nil) // opens the connection that the others share
	var wg sync.WaitGroup
	for n := range 8 {
		name := fmt.Sprintf("user-%d", n)
		client := i.clientFor(name, "group-"+name)
		wg.Go(func() {
			for range 50 {
				status, got, _ := i.get(client, "/clusters/root:org:team/api", nil)
				if status != 200 || got.Header.Get("X-Remote-User") != name || got.Header["X-Remote-Group"][0] != "group-"+name || len(got.Header["X-Remote-Group"]) != 2 {
					t.Errorf("%s was received as %v %v", name, got.Header["X-Remote-User"], got.Header["X-Remote-Group"])
					return
				}
			}
		})
	}
	wg.Wait()
	i.alpha.mu.Lock()
	defer i.alpha.mu.Unlock()
	if n := len(i.alpha.conns); n > 4 {
		t.Errorf("%d connections to the shard: they are not shared", n)
	}
}

func TestServiceAccounts(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	const issuer = "https://kcp.default.svc"
	claims := func(change func(map[string]any)) map[string]any {
		c := map[string]any{"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:ns:app", "exp": time.Now().Add(time.Hour).Unix(), "jti": "id1",
			"kubernetes.io": map[string]any{"clusterName": "team1", "namespace": "ns", "serviceaccount": map[string]string{"name": "app", "uid": "u"}}}
		if change != nil {
			change(c)
		}
		return c
	}
	legacy := func(change func(map[string]any)) map[string]any {
		c := map[string]any{"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:app", "kubernetes.io/serviceaccount/clusterName": "team1",
			"kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/service-account.name": "app", "kubernetes.io/serviceaccount/service-account.uid": "u"}
		if change != nil {
			change(c)
		}
		return c
	}
	sign := func(key *rsa.PrivateKey, c map[string]any) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil)
		must(t, err)
		token, err := jwt.Signed(signer).Claims(c).CompactSerialize()
		must(t, err)
		return token
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)

	lookup := false
	configure := func(i *env, o *options.Options) {
		i.write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		o.Authentication.ServiceAccounts.KeyFiles = []string{i.file("sa.pub")}
		o.Authentication.ServiceAccounts.Lookup = lookup
	}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	i := newEnv(t, configure)
	for name, tc := range map[string]struct {
		token  string
		status int
	}{
		"a bound token is accepted":                               {sign(key, claims(nil)), 200},
		"a legacy token is accepted":                              {sign(key, legacy(nil)), 200},
		"a token with another key's signature is refused":         {sign(other, claims(nil)), 401},
		"an expired token is refused":                             {sign(key, claims(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() })), 401},
		"a bound token without expiry is refused":                 {sign(key, claims(func(c map[string]any) { delete(c, "exp") })), 401},
		"another audience is refused":                             {sign(key, claims(func(c map[string]any) { c["aud"] = []string{"vault"} })), 401},
		"another issuer is refused":                               {sign(key, claims(func(c map[string]any) { c["iss"] = "https://other" })), 401},
		"a token without a logical cluster is refused":            {sign(key, claims(func(c map[string]any) { delete(c["kubernetes.io"].(map[string]any), "clusterName") })), 401},
		"a token with the wildcard as logical cluster is refused": {sign(key, claims(func(c map[string]any) { c["kubernetes.io"].(map[string]any)["clusterName"] = "*" })), 401},
		"a token with another subject is refused":                 {sign(key, claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:kube-system:admin" })), 401},
		"a legacy token with another subject is refused":          {sign(key, legacy(func(c map[string]any) { c["sub"] = "admin" })), 401},
	} {
		t.Run(name, func(t *testing.T) {
			status, got, body := i.get(i.client(nil), "/clusters/root/api", bearer(tc.token))
			if status != tc.status {
				t.Fatalf("status %d, want %d: %s", status, tc.status, body)
			}
			if status != 200 {
				return
			}
			// The extra has the logical cluster: in others the account has no permissions.
			if got.Header.Get("X-Remote-User") != "system:serviceaccount:ns:app" || got.Header.Get("X-Remote-Extra-Authentication.kcp.io%2fcluster-Name") != "team1" ||
				strings.Join(got.Header["X-Remote-Group"], ",") != "system:authenticated,system:serviceaccounts,system:serviceaccounts:ns" || got.Header.Get("Authorization") != "" {
				t.Errorf("the backend received %v", got.Header)
			}
		})
	}

	t.Run("a URL without a path resolves to the logical cluster of the token", func(t *testing.T) {
		status, got, body := i.get(i.client(nil), "/api/v1/namespaces", bearer(sign(key, claims(nil))))
		if status != 200 || got.Backend != "alpha" || got.Path != "/clusters/team1/api/v1/namespaces" {
			t.Errorf("%d %s: %s", status, got.Path, body)
		}
	})
	t.Run("a URL without a path does not resolve behind another proxy", func(t *testing.T) {
		header := bearer(sign(key, claims(nil)))
		header.Set("X-Kubernetes-Sharded-Request", "true")
		if status, _, _ := i.get(i.client(nil), "/api/v1/namespaces", header); status != 404 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("a forged token is refused in the logical cluster of its claim", func(t *testing.T) {
		if status, _, _ := i.get(i.client(nil), "/api/v1/namespaces", bearer(sign(other, claims(nil)))); status != 401 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("with a lookup, the token is reviewed at the shard of the account", func(t *testing.T) {
		lookup = true
		i := newEnv(t, configure)
		if status, _, body := i.get(i.client(nil), "/clusters/root/api", bearer(sign(key, claims(nil)))); status != 200 {
			t.Errorf("an existing account: %d %s", status, body)
		}
		i.alpha.mu.Lock()
		i.alpha.reviewedUser = "oidc:app"
		i.alpha.mu.Unlock()
		if status, _, _ := i.get(i.client(nil), "/clusters/root/api", bearer(sign(key, claims(func(c map[string]any) { c["jti"] = "id4" })))); status != 401 {
			t.Errorf("a user of an issuer of the workspace: %d", status)
		}
		i.alpha.mu.Lock()
		i.alpha.acceptTokens = false
		i.alpha.mu.Unlock()
		if status, _, _ := i.get(i.client(nil), "/clusters/root/api", bearer(sign(key, claims(func(c map[string]any) { c["jti"] = "id2" })))); status != 401 {
			t.Errorf("a deleted account: %d", status)
		}
		if status, _, _ := i.get(i.client(nil), "/clusters/root/api", bearer(sign(key, claims(func(c map[string]any) { c["kubernetes.io"].(map[string]any)["clusterName"] = "unknown" })))); status != 401 {
			t.Errorf("an account of an unknown cluster: %d", status)
		}
		i.alpha.stop()
		if status, _, _ := i.get(i.client(nil), "/clusters/root/api", bearer(sign(key, claims(func(c map[string]any) { c["jti"] = "id3" })))); status != 503 {
			t.Errorf("an account whose shard does not answer: %d, want 503, so that clients repeat the request", status)
		}
	})
}
