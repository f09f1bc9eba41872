package startupserver

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

func TestServerLeavesThePortOpen(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := dynamiccertificates.NewStaticCertKeyContent("serving", cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(&genericapiserver.SecureServingInfo{Listener: listener, Cert: content}, "identities")
	if err != nil {
		t.Fatal(err)
	}
	server.SetReason(errors.New("root is unavailable"))
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/livez":             {http.StatusOK, "ok"},
		"/livez/ping":        {http.StatusOK, "ok"},
		"/readyz?verbose":    {http.StatusInternalServerError, "[-]identities failed: root is unavailable"},
		"/healthz":           {http.StatusInternalServerError, "root is unavailable"},
		"/clusters/root/api": {http.StatusServiceUnavailable, "starting"},
	} {
		if code, body := get(t, "https://"+listener.Addr().String()+path); code != want.code || !strings.Contains(body, want.body) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	next := &http.Server{Handler: http.NotFoundHandler()}
	ended := make(chan error, 1)
	go func() { ended <- next.Serve(listener) }()
	if code, _ := get(t, "http://"+listener.Addr().String()+"/livez"); code != http.StatusNotFound {
		t.Errorf("the next server of the port returned %d", code)
	}
	_ = next.Close()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the next server returned %v", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
