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

func TestMetadataServicesAreRefused(t *testing.T) {
	config, err := AnonymousResolver{}.ClientConfigFor("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"169.254.169.254:443", "[fd00:ec2::254]:443", "100.100.100.200:443"} {
		conn, err := config.Dial(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "metadata service") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestGuardedTransport(t *testing.T) {
	review := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		error string // the error of the request or of reading
		body  int    // the length of the body that was read
	}{
		"a response":                 {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, review(40)) }, "", 40},
		"a response of the maximum":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, review(maxResponseBytes)) }, "", maxResponseBytes},
		"a response too large":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, review(maxResponseBytes+1)) }, "too large", 0},
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
