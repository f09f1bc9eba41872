package doctor

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/plugin/connection"
)

// serve starts a server with TLS, and returns the configuration of a client with a token.
func serve(t *testing.T, handler http.HandlerFunc) *rest.Config {
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func respond(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// TestRedirectsAreNotFollowed: a shard cannot send the credentials to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("got a request with the header %q", r.Header.Get("Authorization"))
	})
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("got no token")
		}
		http.Redirect(w, r, other.Host+r.URL.Path, http.StatusTemporaryRedirect)
	})
	server, _ := probe{name: "alpha", config: config, version: "/version", metrics: true}.run(t.Context())
	if !server.Reachable || server.Ready || server.Status != http.StatusTemporaryRedirect {
		t.Errorf("got %+v", server)
	}
	client, err := newDynamic(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := each(t.Context(), client.Resource(shardsResource), "", func(*unstructured.Unstructured) error { return nil }); err == nil {
		t.Error("a list succeeds")
	}
}

func TestProbe(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tc := range map[string]struct {
		ctx    context.Context
		status int
		change func(*rest.Config)
		want   *Server // without what depends on the time
		unread string
	}{
		"a server that is ready":          {t.Context(), 200, nil, &Server{Reachable: true, Ready: true, Status: 200}, ""},
		"a server that is not":            {t.Context(), 503, nil, &Server{Reachable: true, Status: 503}, ""},
		"credentials that are unknown":    {t.Context(), 401, nil, &Server{Reachable: true, Status: 401}, "alpha: credentials refused"},
		"credentials that do not suffice": {t.Context(), 403, nil, &Server{Reachable: true, Status: 403}, "alpha: credentials refused"},
		"a certificate of another CA":     {t.Context(), 200, func(c *rest.Config) { c.CAData = nil }, &Server{untrusted: true}, ""},
		"a certificate of another host":   {t.Context(), 200, func(c *rest.Config) { c.ServerName = "other" }, &Server{}, ""},
		"no time left":                    {ended, 200, nil, nil, "alpha, which has not answered when --timeout ended"},
	} {
		t.Run(name, func(t *testing.T) {
			config := serve(t, respond(tc.status))
			if tc.change != nil {
				tc.change(config)
			}
			got, unread := probe{name: "alpha", config: config}.run(tc.ctx)
			if (got == nil) != (tc.want == nil) {
				t.Fatalf("got %+v", got)
			}
			if got != nil && (got.Reachable != tc.want.Reachable || got.Ready != tc.want.Ready || got.Status != tc.want.Status || got.untrusted != tc.want.untrusted || got.Certificate == nil) {
				t.Errorf("got %+v", got)
			}
			var texts []string
			for _, u := range unread {
				texts = append(texts, u.String())
			}
			if strings.Join(texts, ",") != tc.unread {
				t.Errorf("got %q", texts)
			}
		})
	}
}

// TestLastChange: a change of the status is none of the spec.
func TestLastChange(t *testing.T) {
	entry := func(subresource string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Subresource: subresource, Time: &metav1.Time{Time: at}}
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetCreationTimestamp(metav1.Time{Time: ago(time.Hour)})
	object.SetManagedFields([]metav1.ManagedFieldsEntry{entry("", ago(time.Minute)), entry("status", ago(time.Second)), entry("", ago(2*time.Minute))})
	got, err := hostObjectOf(object)
	if err != nil || !got.Changed.Equal(ago(time.Minute)) || !got.Created.Equal(ago(time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestShardConfig(t *testing.T) {
	g := &gatherer{shards: &rest.Config{Host: "https://root:6443/", TLSClientConfig: rest.TLSClientConfig{ServerName: "root"}}}
	for address, want := range map[string]string{"https://root:6443": "root", "https://alpha:6443/": ""} {
		config, err := g.shardConfig(Shard{BaseURL: address})
		if err != nil || config.ServerName != want || config.Host != strings.TrimSuffix(address, "/") {
			t.Errorf("%s: %v, %v", address, config, err)
		}
	}
	if _, err := g.shardConfig(Shard{BaseURL: "http://alpha"}); err == nil {
		t.Error("credentials are sent without TLS")
	}
}

// TestRootShardIsDown has a front proxy that is ready, and reaches no root shard.
func TestRootShardIsDown(t *testing.T) {
	for name, tc := range map[string]struct {
		time     time.Duration
		findings int
	}{"it does not answer": {time.Minute, 1}, "the time is over": {-time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tc.time)
			defer cancel()
			config := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(clientcmdapi.Config{
				Clusters:  map[string]*clientcmdapi.Cluster{"a": {Server: config.Host + "/clusters/root", CertificateAuthorityData: config.CAData}},
				AuthInfos: map[string]*clientcmdapi.AuthInfo{"a": {Token: config.BearerToken}}, Contexts: map[string]*clientcmdapi.Context{"a": {Cluster: "a", AuthInfo: "a"}},
				CurrentContext: "a",
			}, file); err != nil {
				t.Fatal(err)
			}
			flags := connection.NewFlags(genericiooptions.NewTestIOStreamsDiscard())
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Bind(set)
			if err := set.Parse([]string{"--kubeconfig", file}); err != nil {
				t.Fatal(err)
			}
			g, err := newGatherer(flags, options{maxWorkspaces: 1})
			if err != nil {
				t.Fatal(err)
			}
			facts, err := g.read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			report := Examine(facts, testLimits)
			if len(report.Findings) != tc.findings || report.Summary.Skipped == 0 {
				t.Errorf("got %+v, %+v", report.Findings, report.Summary)
			}
		})
	}
}

// TestTextsOfTenants: what tenants write into names of conditions, reasons and endpoints is not kept where a bundle has it.
func TestTextsOfTenants(t *testing.T) {
	for reason, want := range map[string]string{"NotReady": "NotReady", "": "", "secret 1": "", "a-b": "", strings.Repeat("a", 65): ""} {
		got, known := conditionOf("Ready", "False", reason, "", now)
		if got.Reason != want || !known {
			t.Errorf("%q: got %q, %v", reason, got.Reason, known)
		}
	}
	if _, known := conditionOf("Canary", "False", "", "", now); known {
		t.Error("a condition is kept that no check reads")
	}
	slice := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"endpoints": []any{
		map[string]any{"url": "https://vw/services/x/services/apiexport/1/a"}, map[string]any{"url": "https://vw.canary/services/apiexport/1/a"}, map[string]any{"url": "https://vw.canary/2"},
	}}}}
	got, err := sliceOf(slice, []Shard{{VirtualWorkspaceURL: "https://vw/services/x/"}})
	if err != nil || len(got.Bases) != 1 || got.Bases[0] != "https://vw/services/x" || got.Foreign != 2 || len(got.ForeignHosts) != 1 || got.ForeignHosts[0] != "https://vw.canary" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOwnershipDecidesSeverity(t *testing.T) {
	for cluster, want := range map[string]Severity{"root": SeverityError, "system:admin": SeverityError, "rooted": SeverityWarning, "1abc": SeverityWarning} {
		if got := (Object{Cluster: cluster}).errorOf(); got != want {
			t.Errorf("%s: got %s", cluster, got)
		}
	}
}
