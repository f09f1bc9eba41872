package issuers

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve runs a TLS server and returns its URL and a client for it.
func serve(t *testing.T, handler http.HandlerFunc) (string, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	client, err := newClient(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, client
}

func TestWhatAnIssuersServerCanCost(t *testing.T) {
	t.Run("no plain HTTP", func(t *testing.T) {
		_, client := serve(t, func(http.ResponseWriter, *http.Request) {})
		refused(t, client, "http://127.0.0.1/", "https only")
	})
	t.Run("no redirect to it", func(t *testing.T) {
		url, client := serve(t, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1/", http.StatusFound)
		})
		refused(t, client, url, "not https")
	})
	t.Run("no endless redirects", func(t *testing.T) {
		url, client := serve(t, func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/again", http.StatusFound) })
		refused(t, client, url, "too often")
	})
	t.Run("no metadata of machines", func(t *testing.T) {
		_, client := serve(t, func(http.ResponseWriter, *http.Request) {})
		for _, address := range []string{"https://169.254.169.254/", "https://[fe80::1]/", "https://[::ffff:169.254.169.254]/", "https://0.0.0.0/"} {
			refused(t, client, address, "not one that an issuer can have")
		}
	})
	t.Run("no endless answer", func(t *testing.T) {
		url, client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 2*maxAnswer)) // fails when the client disconnects
		})
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); n != maxAnswer || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
	t.Run("not more often than", func(t *testing.T) {
		asked := 0
		url, client := serve(t, func(http.ResponseWriter, *http.Request) { asked++ })
		for range 5 * requestsAtOnce {
			if resp, err := client.Get(url); err == nil {
				resp.Body.Close()
			}
		}
		if asked < requestsAtOnce || asked > 2*requestsAtOnce {
			t.Errorf("asked %d times", asked)
		}
	})
}

func refused(t *testing.T, client *http.Client, url, why string) {
	t.Helper()
	resp, err := client.Get(url)
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: got %v, want a refusal: %s", url, err, why)
	}
}
