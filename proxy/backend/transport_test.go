package backend

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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
	fromFiles, err := NewTransport("test", files)
	if err != nil {
		t.Fatal(err)
	}
	fromConfig, err := NewTransportFor("test", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key}})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 300 {
		state := versions[round%2]
		write(state)
		var readers sync.WaitGroup
		for _, file := range append(fromFiles.files, fromConfig.files...) {
			readers.Go(func() { _ = file.RunOnce(t.Context()) })
		}
		readers.Wait()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(state[files.CA])
		cert, err := tls.X509KeyPair(state[files.Cert], state[files.Key])
		if err != nil {
			t.Fatal(err)
		}
		for name, transport := range map[string]*Transport{"files": fromFiles, "client configuration": fromConfig} {
			used := transport.current.Load().requests.TLSClientConfig
			if !used.RootCAs.Equal(roots) || !slices.EqualFunc(clientCertificate(t, used).Certificate, cert.Certificate, slices.Equal) {
				t.Fatalf("%s, change %d: former files are in use", name, round)
			}
		}
	}
}

func clientCertificate(t *testing.T, config *tls.Config) *tls.Certificate {
	t.Helper()
	if config.GetClientCertificate == nil {
		return &config.Certificates[0]
	}
	cert, err := config.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestReadAhead: of a response that is not read, the transport of a client configuration buffers its window.
func TestReadAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		query  string
		window int64
	}{
		"an ordinary request": {"", requestWindow},
		"a watch":             {"?watch=true", watchWindow},
	} {
		t.Run(name, func(t *testing.T) {
			const chunk = 16 << 10
			var written atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				for req.Method == http.MethodGet {
					n, err := w.Write(make([]byte, chunk))
					if written.Add(int64(n)); err != nil {
						return
					}
				}
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			transport, err := NewTransportFor("test", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.current.Load().closeIdleConnections()
			client := http.Client{Transport: transport}
			unread, err := client.Get(server.URL + "/" + tc.query)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unread.Body.Close() }()
			if unread.ProtoMajor != 2 {
				t.Errorf("the protocol is %s", unread.Proto)
			}
			for deadline := time.Now().Add(time.Minute); written.Load() < tc.window; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the server has sent %d bytes", written.Load())
				}
			}
			for range 20 { // the server would continue to send meanwhile
				head, err := client.Head(server.URL + "/" + tc.query)
				if err != nil {
					t.Fatal(err)
				}
				_ = head.Body.Close()
			}
			if got, most := written.Load(), tc.window+4*chunk; got > most {
				t.Errorf("the server has sent %d bytes, want at most %d", got, most)
			}
		})
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
