package shardclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/controllers/status"
)

func TestCheckReadyz(t *testing.T) {
	for name, tc := range map[string]struct {
		code       int
		page, want string
	}{
		"a server that is ready":             {200, "ok", ""},
		"a failure with a list of checks":    {500, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]shard-registration failed\nreadyz check failed\n", "/readyz is 500: etcd, shard-registration"},
		"a failure without a list of checks": {503, "", "/readyz is 503"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.code)
				fmt.Fprint(w, tc.page)
			}))
			defer server.Close()
			have := ""
			if err := checkReadyz(t.Context(), server.Client(), server.URL); err != nil {
				have = StableMessage(err)
			}
			if have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}

func TestMaxMetric(t *testing.T) {
	for name, tc := range map[string]struct {
		page string
		want time.Duration
		ok   bool
	}{
		"the largest of several": {"# HELP lag x\nother 99\nlag{direction=\"read\"} 0.5\nlag{direction=\"write\"} 12\nlag_total{} 70\n", 12 * time.Second, true},
		"without labels":         {"lag 3\n", 3 * time.Second, true},
		"a page without it":      {"other 99\n", 0, true},
		"what is no number":      {"lag{} many\n", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := maxMetric(strings.NewReader(tc.page), "lag")
			if have != tc.want || (err == nil) != tc.ok {
				t.Errorf("got %s, %v", have, err)
			}
		})
	}
}

func TestStableMessage(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "workspaces"}, "w")
	address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6443}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"the status of a server":                {fmt.Errorf("attempt 7: %w", missing), missing.Error()},
		"a result":                              {status.Wait("C", "R", "waiting for Secret s").AsError(), "waiting for Secret s"},
		"a stable error":                        {fmt.Errorf("attempt 7: %w", Errorf("not ready")), "not ready"},
		"a described error":                     {describeError(context.Background(), missing, "requesting Shard alpha"), "requesting Shard alpha: " + missing.Error()},
		"a server that does not answer":         {fmt.Errorf("port 4711: %w", context.DeadlineExceeded), "no answer within 10s"},
		"a certificate of an unknown authority": {fmt.Errorf("port 4711: %w", x509.UnknownAuthorityError{}), "its certificate is signed by an unknown authority"},
		"a certificate for another name":        {fmt.Errorf("port 4711: %w", x509.HostnameError{Certificate: &x509.Certificate{}}), "its certificate is for another name"},
		"an expired certificate":                {fmt.Errorf("port 4711: %w", x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time is"}), "its certificate has expired, or is not valid yet"},
		"a connection that ends":                {fmt.Errorf("port 4711: %w", io.ErrUnexpectedEOF), "unexpected EOF"},
		"a name that does not exist":            {&url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Name: "root-kcp.kcp.svc", Server: "10.0.0.10:53", IsNotFound: true}}}, "lookup root-kcp.kcp.svc: no such host"},
		"a name server that does not answer":    {&net.DNSError{Err: "read udp 10.0.0.1:4711->10.0.0.10:53: i/o timeout", Name: "root-kcp.kcp.svc", IsTimeout: true}, "lookup root-kcp.kcp.svc: no answer of the name server"},
		"a name server that fails":              {&net.DNSError{Err: "read udp 10.0.0.1:4711->10.0.0.10:53: connection refused", Name: "root-kcp.kcp.svc", IsTemporary: true}, "lookup root-kcp.kcp.svc: the name server failed"},
		"a connection that is refused":          {fmt.Errorf("port 4711: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "dial tcp 10.0.0.7:6443: connection refused"},
		"a connection that is reset":            {&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 4711}, Addr: address, Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "read tcp 10.0.0.7:6443: connection reset by peer"},
		"a client certificate that is refused":  {&url.Error{Op: "Get", Err: &net.OpError{Op: "remote error", Err: tls.AlertError(42)}}, "tls: bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if have := StableMessage(tc.err); have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
	if err := describeError(context.Background(), missing, "asking"); !apierrors.IsNotFound(err) || errors.Unwrap(err) == nil {
		t.Error("a described error hides its cause")
	}
}
