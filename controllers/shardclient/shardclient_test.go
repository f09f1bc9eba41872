package shardclient

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
		"no connection at all":                  {fmt.Errorf("port 4711: %w", io.ErrUnexpectedEOF), "no connection"},
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
