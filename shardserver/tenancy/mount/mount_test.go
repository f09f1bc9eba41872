package mount

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestTarget(t *testing.T) {
	for name, tc := range map[string]struct{ base, path, want string }{
		"the path is appended to that of the mount":      {"https://mount.example/base", "/api/v1", "https://mount.example/base/api/v1"},
		"a trailing slash is not doubled":                {"https://mount.example/", "/api", "https://mount.example/api"},
		"escaping is kept":                               {"https://mount.example/base", "/api/a%2Fb", "https://mount.example/base/api/a%2Fb"},
		"dot segments are rejected":                      {"https://mount.example/base", "/../other", ""},
		"escaped dot segments are rejected":              {"https://mount.example/base", "/%2e%2e/other", ""},
		"dot segments with escaped slashes are rejected": {"https://mount.example/base", "/a%2f..%2f..%2fother", ""},
		"plain HTTP is rejected":                         {"http://mount.example", "/", ""},
		"no host is rejected":                            {"https:///x", "/", ""},
		"other schemes are rejected":                     {"file:///etc/passwd", "/", ""},
		"a user in the URL is rejected":                  {"https://user:secret@mount.example", "/", ""},
		"a query is rejected":                            {"https://mount.example/?a=", "/api", ""},
		"a fragment is rejected":                         {"https://mount.example/#a", "/api", ""},
		"a bad escape is rejected":                       {"https://mount.example", "/%zz", ""},
		"the host cannot be changed by the path":         {"https://mount.example", "//evil.example/", "https://mount.example//evil.example/"},
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

func TestCredentialsAndUnknownHeadersAreNotForwarded(t *testing.T) {
	var got *http.Request
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set(logicalcluster.MovingHeader, "true")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	target, err := Target(server.URL+"/base", "/api/v1")
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1?limit=1", nil)
	for _, name := range []string{"Authorization", "Cookie", "X-Remote-User", "X-Remote-Group", "X_remote_user", "X-Forwarded-For", "Impersonate-User", "X-Anything", "Connection"} {
		req.Header.Set(name, "secret")
	}
	req.Header.Set("Accept", "application/json")
	recorder := httptest.NewRecorder()
	WithProxy(http.NotFoundHandler()).ServeHTTP(recorder, req.WithContext(WithTarget(req.Context(), target)))
	if recorder.Code != http.StatusTeapot || recorder.Header().Get("Set-Cookie") != "" || recorder.Header().Get(logicalcluster.MovingHeader) != "" {
		t.Fatalf("status %d, headers %v", recorder.Code, recorder.Header())
	}
	if got.URL.String() != "/base/api/v1?limit=1" || "https://"+got.Host != server.URL {
		t.Errorf("requested %s%s", got.Host, got.URL)
	}
	for name, values := range got.Header {
		switch name {
		case "Accept", "User-Agent", "Accept-Encoding":
		default:
			t.Errorf("header %s: %v", name, values)
		}
	}
	if got.TLS == nil || len(got.TLS.PeerCertificates) != 0 {
		t.Error("the shard presented a client certificate")
	}
}

// TestInvalidStatusCodeIsABadGateway writes the response by hand because httptest panics on such a code.
func TestInvalidStatusCodeIsABadGateway(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		_, _ = connection.Write([]byte("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"))
	}))
	defer server.Close()
	target, err := Target(server.URL, "/api/v1")
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1", nil)
	recorder := httptest.NewRecorder()
	WithProxy(http.NotFoundHandler()).ServeHTTP(recorder, req.WithContext(WithTarget(req.Context(), target)))
	if recorder.Code != http.StatusBadGateway {
		t.Errorf("got %d", recorder.Code)
	}
}

func TestUpgradesAreRefused(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/exec", nil)
	req.Header.Set("Upgrade", "websocket")
	recorder := httptest.NewRecorder()
	WithProxy(http.NotFoundHandler()).ServeHTTP(recorder, req.WithContext(WithTarget(req.Context(), &url.URL{})))
	if recorder.Code != http.StatusNotImplemented {
		t.Errorf("got %d", recorder.Code)
	}
}

func TestMetadataServicesAreRefused(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "[fd00:ec2::254]", "100.100.100.200"} {
		resp, err := (&http.Client{Transport: newTransport()}).Get("https://" + host + "/")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "metadata service") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestAuthorizer(t *testing.T) {
	var delegated authorizer.Attributes
	chain := Authorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		delegated = a
		return authorizer.DecisionAllow, "", nil
	}))
	ctx := WithTarget(context.Background(), &url.URL{})
	tenant := &user.DefaultInfo{Name: "t", Groups: []string{user.AllAuthenticated}}
	if got, _, _ := chain.Authorize(ctx, authorizer.AttributesRecord{User: tenant, Verb: "delete", Resource: "secrets", ResourceRequest: true}); got != authorizer.DecisionAllow || delegated.GetVerb() != "access" || delegated.GetPath() != "/" || delegated.IsResourceRequest() {
		t.Errorf("decision %v for %+v", got, delegated)
	}
	delegated = nil
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	if got, _, _ := chain.Authorize(ctx, authorizer.AttributesRecord{User: anonymous, Verb: "get"}); got == authorizer.DecisionAllow || delegated != nil {
		t.Errorf("decision %v for an anonymous user", got)
	}
	if _, _, _ = chain.Authorize(context.Background(), authorizer.AttributesRecord{User: tenant, Verb: "delete"}); delegated.GetVerb() != "delete" {
		t.Errorf("another request is authorized as %+v", delegated)
	}
}
