package testing

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/shardserver/backends"
	"github.com/atoll-dev/atoll/shardserver/options"
)

// SubresourceBackend is a server of the custom subresource machines/console of a provider. It answers with the request that it received, and
// repeats the lines of a connection that is upgraded to the protocol "echo".
type SubresourceBackend struct {
	*httptest.Server

	files backends.Files
}

// ReceivedRequest is what a SubresourceBackend received.
type ReceivedRequest struct {
	Method, Path, Query, Body string
	Header                    http.Header
}

// NewSubresourceBackend starts a backend that only serves clients with a certificate of its CA.
func NewSubresourceBackend(t testing.TB) *SubresourceBackend {
	t.Helper()
	ca := NewCA(t, "backends")
	b := &SubresourceBackend{files: backends.Files{CA: ca.CertFile}}
	b.files.ClientCert, b.files.ClientKey = ca.Issue(t, "shards")
	servingCert, servingKey := ca.Issue(t, "backend")
	pair, err := tls.LoadX509KeyPair(servingCert, servingKey)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(ca.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	b.Server = httptest.NewUnstartedServer(b)
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

// Trust configures a shard to connect to the backend.
func (b *SubresourceBackend) Trust(o *options.Options) { o.Shard.Backends = b.files }

// Flags returns what Trust configures as flags of a shard.
func (b *SubresourceBackend) Flags() []string {
	return []string{
		"--subresource-backend-ca-file=" + b.files.CA,
		"--subresource-backend-client-cert-file=" + b.files.ClientCert,
		"--subresource-backend-client-key-file=" + b.files.ClientKey,
	}
}

// ServeHTTP implements http.Handler.
func (b *SubresourceBackend) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == "/base/clusters/*/apis/example.com/v1":
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "machines/console", Namespaced: true, Kind: "Console", Verbs: metav1.Verbs{"create", "get", "connect"}},
		}})
	case req.Header.Get("Upgrade") != "":
		echo(w)
	case strings.HasSuffix(req.URL.Path, "/redirecting/console"):
		http.Redirect(w, req, "https://example.com/", http.StatusFound)
	default:
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Remote-User", "somebody")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(ReceivedRequest{req.Method, req.URL.EscapedPath(), req.URL.RawQuery, string(body), req.Header})
	}
}

// echo switches to a protocol that repeats lines.
func echo(w http.ResponseWriter) {
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nSet-Cookie: a=b\r\n\r\n")
	for lines := bufio.NewScanner(buffered); lines.Scan(); {
		fmt.Fprintf(connection, "echo %s\n", lines.Text())
	}
}
