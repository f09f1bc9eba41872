package backend

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/testpki"
)

// TestConcurrentReloadsUseTheLatestFiles changes the CA and the pair at once, as the renewal of a Secret does. Each
// file has a watcher that reloads both; the reload of one must not restore files that the other has replaced.
func TestConcurrentReloadsUseTheLatestFiles(t *testing.T) {
	directory := t.TempDir()
	files := Files{CA: filepath.Join(directory, "ca"), Cert: filepath.Join(directory, "cert"), Key: filepath.Join(directory, "key")}
	var versions [2]map[string][]byte // contents by file
	for i, name := range []string{"first", "second"} {
		authority, err := testpki.New(directory, name, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := authority.Issue("proxy")
		if err != nil {
			t.Fatal(err)
		}
		versions[i] = map[string][]byte{}
		for file, from := range map[string]string{files.CA: authority.CertFile, files.Cert: pair.CertFile, files.Key: pair.KeyFile} {
			if versions[i][file], err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(state map[string][]byte) {
		for file, content := range state {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(versions[1])
	transport, err := NewTransport("test", files)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 300 {
		state := versions[round%2]
		write(state)
		var readers sync.WaitGroup
		readers.Go(func() { _ = transport.ca.RunOnce(t.Context()) })
		readers.Go(func() { _ = transport.pair.RunOnce(t.Context()) })
		readers.Wait()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(state[files.CA])
		cert, err := tls.X509KeyPair(state[files.Cert], state[files.Key])
		if err != nil {
			t.Fatal(err)
		}
		used := transport.current.Load().requests.TLSClientConfig
		if !used.RootCAs.Equal(roots) || !slices.EqualFunc(used.Certificates[0].Certificate, cert.Certificate, slices.Equal) {
			t.Fatalf("change %d: former files are in use", round)
		}
	}
}

// TestIsLongRunning: the limits of users and the buffers of responses agree about what a watch is, however it is written.
func TestIsLongRunning(t *testing.T) {
	for name, tc := range map[string]struct {
		query, connection string
		want              bool
	}{
		"a list":                       {"limit=5", "", false},
		"a watch":                      {"watch=true", "", true},
		"a watch with an encoded key":  {"%77atch=true", "", true},
		"a log that is followed":       {"follow=true", "", true},
		"a query that contains watch=": {"fieldSelector=a%3Dwatch%3D", "", false},
		"an upgrade":                   {"", "keep-alive, Upgrade", true},
		"the header Upgrade by itself": {"", "keep-alive", false},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?"+tc.query, nil)
			if tc.connection != "" {
				req.Header.Set("Upgrade", "SPDY/3.1")
				req.Header.Set("Connection", tc.connection)
			}
			if got := IsLongRunning(req); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
