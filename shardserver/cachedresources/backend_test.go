package cachedresources_test

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

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// backend is a server of custom subresources of a provider. It answers with the request that it received.
type backend struct {
	*httptest.Server
	files struct{ ca, cert, key string }
}

// receivedRequest is what a backend received.
type receivedRequest struct {
	Method, Path, Query, Body string
	Header                    http.Header
}

// newBackend starts a backend that only serves clients with a certificate of its CA.
func newBackend(t *testing.T) *backend {
	t.Helper()
	ca := shardtesting.NewCA(t, "backends")
	b := &backend{}
	b.files.ca = ca.CertFile
	b.files.cert, b.files.key = ca.Issue(t, "shards")
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

// trust configures a shard to connect to the backend.
func (b *backend) trust(o *options.Options) {
	o.Shard.Backends.CA, o.Shard.Backends.ClientCert, o.Shard.Backends.ClientKey = b.files.ca, b.files.cert, b.files.key
}

func (b *backend) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
		_ = json.NewEncoder(w).Encode(receivedRequest{req.Method, req.URL.EscapedPath(), req.URL.RawQuery, string(body), req.Header})
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
