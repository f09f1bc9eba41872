package mount

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestTargets(t *testing.T) {
	for name, tc := range map[string]struct{ base, path, want string }{
		"a path goes behind that of the mount":   {"https://far.example/base", "/api/v1", "https://far.example/base/api/v1"},
		"a slash at the end is not doubled":      {"https://far.example/", "/api", "https://far.example/api"},
		"what is escaped stays so":               {"https://far.example/base", "/api/a%2Fb", "https://far.example/base/api/a%2Fb"},
		"the path cannot climb":                  {"https://far.example/base", "/../other", ""},
		"nor escaped":                            {"https://far.example/base", "/%2e%2e/other", ""},
		"nor by escaped slashes":                 {"https://far.example/base", "/a%2f..%2f..%2fother", ""},
		"plain HTTP is refused":                  {"http://far.example", "/", ""},
		"no host is refused":                     {"https:///x", "/", ""},
		"other schemes are refused":              {"file:///etc/passwd", "/", ""},
		"a user in the URL is refused":           {"https://user:secret@far.example", "/", ""},
		"a query would swallow the path":         {"https://far.example/?a=", "/api", ""},
		"a fragment too":                         {"https://far.example/#a", "/api", ""},
		"a bad escape is refused":                {"https://far.example", "/%zz", ""},
		"the host cannot be changed by the path": {"https://far.example", "//evil.example/", "https://far.example//evil.example/"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := Target(tc.base, tc.path)
			got := ""
			if err == nil {
				got = target.String()
			}
			if got != tc.want {
				t.Errorf("got %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestNothingOfTheCallerIsPassedOn(t *testing.T) {
	var got *http.Request
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer far.Close()
	target, err := Target(far.URL+"/base", "/api/v1")
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1?limit=1", nil)
	for _, name := range []string{"Authorization", "Cookie", "X-Remote-User", "X-Remote-Group", "X_remote_user", "X-Forwarded-For", "Impersonate-User", "X-Anything", "Connection"} {
		req.Header.Set(name, "secret")
	}
	req.Header.Set("Accept", "application/json")
	answer := httptest.NewRecorder()
	With(http.NotFoundHandler()).ServeHTTP(answer, req.WithContext(WithTarget(req.Context(), target)))
	if answer.Code != http.StatusTeapot || answer.Header().Get("Set-Cookie") != "" {
		t.Fatalf("answer %d %v", answer.Code, answer.Header())
	}
	if got.URL.String() != "/base/api/v1?limit=1" || "https://"+got.Host != far.URL {
		t.Errorf("asked %s for %s", got.Host, got.URL)
	}
	for name, values := range got.Header {
		switch name {
		case "Accept", "User-Agent", "Accept-Encoding":
		default:
			t.Errorf("header %s: %v", name, values)
		}
	}
	if got.TLS == nil || len(got.TLS.PeerCertificates) != 0 {
		t.Error("the shard showed a certificate")
	}
}

// TestNoStatus: what no server can send on is the mount's failure. httptest would panic itself.
func TestNoStatus(t *testing.T) {
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		_, _ = connection.Write([]byte("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"))
	}))
	defer far.Close()
	target, err := Target(far.URL, "/api/v1")
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1", nil)
	answer := httptest.NewRecorder()
	With(http.NotFoundHandler()).ServeHTTP(answer, req.WithContext(WithTarget(req.Context(), target)))
	if answer.Code != http.StatusBadGateway {
		t.Errorf("got %d", answer.Code)
	}
}

func TestUpgradesAreRefused(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/exec", nil)
	req.Header.Set("Upgrade", "websocket")
	answer := httptest.NewRecorder()
	With(http.NotFoundHandler()).ServeHTTP(answer, req.WithContext(WithTarget(req.Context(), &url.URL{})))
	if answer.Code != http.StatusNotImplemented {
		t.Errorf("got %d", answer.Code)
	}
}

func TestAddressesThatAreNobodysServer(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:443": true, "[fe80::1]:443": true, "[::ffff:169.254.169.254]:443": true, "0.0.0.0:443": true, "224.0.0.1:443": true,
		"10.0.0.1:443": false, "192.0.2.1:6443": false, "127.0.0.1:6443": false, "[2001:db8::1]:443": false,
	} {
		if err := onlyHosts("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestWhoMayUseAMount(t *testing.T) {
	var asked authorizer.Attributes
	chain := Authorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return authorizer.DecisionAllow, "", nil
	}))
	ctx := WithTarget(context.Background(), &url.URL{})
	tenant := &user.DefaultInfo{Name: "t", Groups: []string{user.AllAuthenticated}}
	if got, _, _ := chain.Authorize(ctx, authorizer.AttributesRecord{User: tenant, Verb: "delete", Resource: "secrets", ResourceRequest: true}); got != authorizer.DecisionAllow || asked.GetVerb() != "access" || asked.GetPath() != "/" || asked.IsResourceRequest() {
		t.Errorf("decision %v about %+v", got, asked)
	}
	asked = nil
	stranger := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	if got, _, _ := chain.Authorize(ctx, authorizer.AttributesRecord{User: stranger, Verb: "get"}); got == authorizer.DecisionAllow || asked != nil {
		t.Errorf("decision %v for a stranger", got)
	}
	if _, _, _ = chain.Authorize(context.Background(), authorizer.AttributesRecord{User: tenant, Verb: "delete"}); asked.GetVerb() != "delete" {
		t.Errorf("another request is decided as %+v", asked)
	}
}
