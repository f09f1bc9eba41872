package issuers

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// startServer runs a TLS server and returns its URL and a client for it.
func startServer(t *testing.T, handler http.HandlerFunc) (string, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	client, err := newClient(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, client
}

func TestClientLimits(t *testing.T) {
	t.Run("HTTP is refused", func(t *testing.T) {
		_, client := startServer(t, func(http.ResponseWriter, *http.Request) {})
		expectError(t, client, "http://127.0.0.1/", "https only")
	})
	t.Run("a redirect to HTTP is refused", func(t *testing.T) {
		url, client := startServer(t, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1/", http.StatusFound)
		})
		expectError(t, client, url, "not https")
	})
	t.Run("redirects are limited", func(t *testing.T) {
		url, client := startServer(t, func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/again", http.StatusFound) })
		expectError(t, client, url, "too often")
	})
	t.Run("addresses of metadata services are refused", func(t *testing.T) {
		_, client := startServer(t, func(http.ResponseWriter, *http.Request) {})
		for _, address := range []string{"https://169.254.169.254/", "https://[fe80::1]/", "https://[fd00:ec2::254]/", "https://100.100.100.200/", "https://0.0.0.0/"} {
			expectError(t, client, address, "metadata service")
		}
	})
	t.Run("the response size is limited", func(t *testing.T) {
		url, client := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 2*maxResponseBytes)) // fails when the client disconnects
		})
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); n != maxResponseBytes || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
	t.Run("requests are rate-limited", func(t *testing.T) {
		requests := 0
		url, client := startServer(t, func(http.ResponseWriter, *http.Request) { requests++ })
		for range 5 * requestBurst {
			if resp, err := client.Get(url); err == nil {
				resp.Body.Close()
			}
		}
		if requests < requestBurst || requests > 2*requestBurst {
			t.Errorf("%d requests", requests)
		}
	})
}

func expectError(t *testing.T, client *http.Client, url, want string) {
	t.Helper()
	resp, err := client.Get(url)
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want an error with %s", url, err, want)
	}
}
