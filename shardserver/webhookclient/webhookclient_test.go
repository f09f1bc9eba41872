package webhookclient

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestClientConfigHasNoCredentials(t *testing.T) {
	for _, host := range []string{"kubernetes.default.svc:443", "localhost:443", "example.com:443"} {
		config, err := AnonymousResolver{}.ClientConfigFor(host)
		if err != nil {
			t.Fatal(err)
		}
		if config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.CertFile != "" || len(config.CertData) > 0 || config.AuthProvider != nil || config.ExecProvider != nil {
			t.Errorf("%s: %+v", host, config)
		}
	}
	if _, err := (AnonymousResolver{}).ClientConfigForService("kubernetes", "default", 443); err == nil {
		t.Error("a service was resolved")
	}
}

func TestRejectLinkLocal(t *testing.T) {
	for address, rejected := range map[string]bool{
		"169.254.169.254:443":          true,
		"[fe80::1]:443":                true,
		"[::ffff:169.254.169.254]:443": true,
		"0.0.0.0:443":                  true,
		"224.0.0.1:443":                true,
		"10.0.0.1:443":                 false,
		"127.0.0.1:443":                false,
	} {
		if err := rejectLinkLocal("tcp", address, nil); (err != nil) != rejected {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestGuardedTransport(t *testing.T) {
	long := strings.Repeat("x", maxResponseBytes)
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		error string // the error of the request or of reading
		body  int    // the length of the body that was read
	}{
		"a response":                 {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }, "", 4},
		"a response of the maximum":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) }, "", maxResponseBytes},
		"a response too large":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long+"x") }, "too large", maxResponseBytes},
		"an error, without its body": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusForbidden) }, "", 0},
		"a redirect":                 {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, "not followed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.serve)
			defer server.Close()
			config, err := AnonymousResolver{}.ClientConfigFor(net.JoinHostPort("127.0.0.1", "443"))
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			response, err := client.Get(server.URL)
			var body []byte
			if err == nil {
				body, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			if (tc.error == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.error)) || len(body) != tc.body {
				t.Errorf("got %d bytes, %v", len(body), err)
			}
		})
	}
}
