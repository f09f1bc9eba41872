package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/servingcert"
)

func TestWeb(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	cert, key, err := servingcert.Generate("localhost", nil, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	served := Web{Address: ":8443", CertFile: certFile, KeyFile: keyFile}
	for name, test := range map[string]struct {
		change func(*Web)
		want   string
	}{
		"off":                               {func(w *Web) { *w = Web{} }, ""},
		"a certificate without the address": {func(w *Web) { w.Address = "" }, "--web-tls-cert-file: is used with --web-address only"},
		"an issuer without the address": {func(w *Web) { *w = Web{OIDCIssuerURL: "https://issuer.example.org"} },
			"--oidc-issuer-url: is used with --web-address only"},
		"a console without the address":   {func(w *Web) { *w = Web{Console: true} }, "--web-console: is used with --web-address only"},
		"a namespace without the address": {func(w *Web) { *w = Web{ConsoleNamespace: "kcp"} }, "--web-console-namespace: is used with --web-address only"},
		"a console":                       {func(w *Web) { w.Console = true }, ""},
		"with a certificate":              {func(*Web) {}, ""},
		"no port":                         {func(w *Web) { w.Address = "localhost" }, "--web-address: got"},
		"a port that is a name":           {func(w *Web) { w.Address = ":https" }, "--web-address: got port"},
		"a certificate without its key":   {func(w *Web) { w.KeyFile = "" }, "--web-tls-cert-file and --web-tls-private-key-file"},
		"a missing certificate":           {func(w *Web) { w.CertFile = "/nowhere" }, "--web-tls-cert-file: "},
		"plain HTTP at all addresses":     {func(w *Web) { *w = Web{Address: ":8080"} }, "--web-address: \":8080\" is no loopback address"},
		"plain HTTP at a loopback one":    {func(w *Web) { *w = Web{Address: "[::1]:8080"} }, ""},
		"plain HTTP at localhost":         {func(w *Web) { *w = Web{Address: "localhost:8080"} }, ""},
		"a front proxy":                   {func(w *Web) { w.FrontProxyURL = "https://front.example.org:6443/" }, ""},
		"a front proxy without TLS":       {func(w *Web) { w.FrontProxyURL = "http://front.example.org" }, "--front-proxy-url: the front proxy is"},
		"a front proxy with a path":       {func(w *Web) { w.FrontProxyURL = "https://front.example.org/clusters/root" }, "--front-proxy-url: the front proxy is"},
		"a front proxy with a password":   {func(w *Web) { w.FrontProxyURL = "https://a:b@front.example.org" }, "--front-proxy-url: the front proxy is"},
		"sign-in":                         {func(w *Web) { w.OIDCIssuerURL, w.OIDCClientID = "https://issuer.example.org/a", "portal" }, ""},
		"an issuer without a client":      {func(w *Web) { w.OIDCIssuerURL = "https://issuer.example.org" }, "--oidc-issuer-url and --oidc-client-id"},
		"an issuer without TLS":           {func(w *Web) { w.OIDCIssuerURL, w.OIDCClientID = "http://issuer.example.org", "portal" }, "--oidc-issuer-url: got"},
	} {
		t.Run(name, func(t *testing.T) {
			w := served
			test.change(&w)
			config, err := w.complete(credentials())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if (config == nil) != (w.Address == "" || err != nil) {
				t.Errorf("got the configuration %v", config)
			}
		})
	}
}

// credentials returns a client configuration with every kind of credentials.
func credentials() *rest.Config {
	return &rest.Config{
		Host: "https://kcp.example.org:6443/clusters/root:provider", BearerToken: "secret", Username: "a", Password: "b",
		Impersonate:     rest.ImpersonationConfig{UserName: "other"},
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key"), ServerName: "kcp"},
	}
}

func TestFrontProxyHasNoCredentials(t *testing.T) {
	w := Web{Address: "127.0.0.1:8080"}
	got, err := w.complete(credentials())
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://kcp.example.org:6443" || string(got.CAData) != "ca" || got.ServerName != "kcp" {
		t.Errorf("address and CA: %v", got)
	}
	if got.BearerToken != "" || got.BearerTokenFile != "" || got.Username != "" || got.Password != "" || got.CertData != nil || got.KeyData != nil || got.Impersonate.UserName != "" || got.AuthProvider != nil || got.ExecProvider != nil {
		t.Errorf("credentials of the provider are left: %v", got)
	}
	insecure := credentials()
	insecure.Insecure = true
	if _, err := w.complete(insecure); err == nil || !strings.Contains(err.Error(), "insecure-skip-tls-verify") {
		t.Errorf("a front proxy that is not verified: %v", err)
	}
}

// TestHost shows which host clusters the console accepts, and with which credentials.
func TestHost(t *testing.T) {
	file := func(server, more string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "kubeconfig")
		text := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
			"clusters":[{"name":"a","cluster":{"server":"` + server + `"` + more + `}}],"users":[{"name":"a","user":{"token":"of-the-console"}}]}`
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("https://host.example.org", "")
	for name, test := range map[string]struct {
		web  Web
		want string
	}{
		"none":                         {Web{Console: true}, ""},
		"one":                          {Web{Console: true, ConsoleNamespace: "kcp", ConsoleKubeconfig: good}, ""},
		"a kubeconfig, no namespace":   {Web{Console: true, ConsoleKubeconfig: good}, "--web-console-kubeconfig: is used with --web-console-namespace only"},
		"without the console":          {Web{ConsoleNamespace: "kcp", ConsoleKubeconfig: good}, "--web-console-namespace: is used with --web-console only"},
		"no name of a namespace":       {Web{Console: true, ConsoleNamespace: "kcp/secrets", ConsoleKubeconfig: good}, "--web-console-namespace: got \"kcp/secrets\", expected the name of a namespace"},
		"no file":                      {Web{Console: true, ConsoleNamespace: "kcp", ConsoleKubeconfig: "/nowhere"}, "--web-console-kubeconfig: /nowhere"},
		"outside of a pod":             {Web{Console: true, ConsoleNamespace: "kcp"}, "--web-console-namespace: unable to load in-cluster configuration"},
		"without TLS":                  {Web{Console: true, ConsoleNamespace: "kcp", ConsoleKubeconfig: file("http://host.example.org", "")}, "--web-console-kubeconfig: the server is"},
		"a server that is not checked": {Web{Console: true, ConsoleNamespace: "kcp", ConsoleKubeconfig: file("https://host.example.org", `,"insecure-skip-tls-verify":true`)}, "--web-console-kubeconfig: insecure-skip-tls-verify"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			config, err := test.web.host()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if want := test.want == "" && test.web.ConsoleNamespace != ""; (config != nil) != want || want && config.BearerToken != "of-the-console" {
				t.Errorf("got the configuration %v", config)
			}
		})
	}
}
