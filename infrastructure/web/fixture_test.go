package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/servingcert"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server with a front proxy that records the requests that it receives.
type site struct {
	url     string
	address string
	client  *http.Client
	tls     *tls.Config
	front   *front
	// certFile and keyFile are the files of the serving certificate.
	certFile, keyFile string
}

// front is a front proxy with a configurable answer.
type front struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
	answer   http.HandlerFunc
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	f.mu.Lock()
	answer := f.answer
	if err == nil {
		f.requests, f.bodies = append(f.requests, req), append(f.bodies, string(text))
	}
	f.mu.Unlock()
	if answer != nil {
		answer(w, req)
	}
}

func (f *front) set(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.bodies, f.answer = nil, nil, answer
}

// received returns the requests since set.
func (f *front) received() ([]*http.Request, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests, f.bodies
}

// config returns a client configuration with the credentials of a provider, which no request may have.
func (f *front) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	return &rest.Config{Host: f.URL, BearerToken: "of-the-provider", Username: "provider", Password: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func page(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// newSite starts a server, over TLS, with pages for /ui/ and /mcp.
func newSite(t *testing.T, changes ...func(*Config)) *site {
	t.Helper()
	s := &site{front: &front{}}
	s.front.Server = httptest.NewUnstartedServer(s.front)
	s.front.EnableHTTP2 = true
	s.front.StartTLS()
	t.Cleanup(s.front.Close)
	cfg := Config{FrontProxy: s.front.config(), UI: page("portal"), MCP: page("mcp"), Limits: DefaultLimits(), Log: klog.Background()}
	for _, change := range changes {
		change(&cfg)
	}
	s.certFile, s.keyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	ca := s.writeCertificate(t)
	server, err := Listen("127.0.0.1:0", s.certFile, s.keyFile, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.address = server.Addr().String()
	s.url = "https://" + s.address
	s.tls = &tls.Config{RootCAs: ca}
	transport := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true, DisableCompression: true}
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	return s
}

// writeCertificate writes a new certificate and returns its CA.
func (s *site) writeCertificate(t *testing.T) *x509.CertPool {
	t.Helper()
	cert, key, err := servingcert.Generate("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{s.certFile: cert, s.keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// do sends a request with a bearer token, and further headers as pairs of name and value; "" for a value removes the header.
func (s *site) do(t *testing.T, method, target string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+target, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer of-the-user")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Add(header[i], header[i+1])
		}
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	shardtesting.Eventually(t, what, condition)
}
