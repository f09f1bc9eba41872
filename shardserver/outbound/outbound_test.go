package outbound

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestNoNameGetsCredentials(t *testing.T) {
	for _, host := range []string{"kubernetes.default.svc:443", "localhost:443", "example.com:443"} {
		config, err := Anonymous{}.ClientConfigFor(host)
		if err != nil {
			t.Fatal(err)
		}
		if config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.CertFile != "" || len(config.CertData) > 0 || config.AuthProvider != nil || config.ExecProvider != nil {
			t.Errorf("%s: %+v", host, config)
		}
	}
	if _, err := (Anonymous{}).ClientConfigForService("kubernetes", "default", 443); err == nil {
		t.Error("a service was resolved")
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:443":          true,
		"[fe80::1]:443":                true,
		"[::ffff:169.254.169.254]:443": true,
		"0.0.0.0:443":                  true,
		"224.0.0.1:443":                true,
		"10.0.0.1:443":                 false,
		"127.0.0.1:443":                false,
	} {
		if err := refuseLinkLocal("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestGuard(t *testing.T) {
	long := strings.Repeat("x", maxAnswer)
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		says  string // the error of the request or of reading
		body  int    // the length of what is read
	}{
		"an answer":                  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }, "", 4},
		"an answer of what may be":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) }, "", maxAnswer},
		"an answer too long":         {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long+"x") }, "too long", maxAnswer},
		"a refusal, without details": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusForbidden) }, "", 0},
		"a redirection":              {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, "not followed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.serve)
			defer server.Close()
			config, err := Anonymous{}.ClientConfigFor(net.JoinHostPort("127.0.0.1", "443"))
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
			if (tc.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.says)) || len(body) != tc.body {
				t.Errorf("got %d bytes, %v", len(body), err)
			}
		})
	}
}
