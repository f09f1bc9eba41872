package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/atoll-dev/atoll/test/freeport"
)

func TestMain(m *testing.M) {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // one process, many commands
	os.Exit(m.Run())
}

// files are the configuration files of a proxy. No connection is made with its self-signed certificate.
type files struct{ dir string }

func newFiles(t *testing.T) files {
	t.Helper()
	f := files{t.TempDir()}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "cert", cert)
	f.write(t, "key", key)
	err = clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://localhost:1", CertificateAuthority: f.path("cert")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: f.path("cert"), ClientKey: f.path("key")}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}}, f.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(f.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f files) entry(path, ca string) string {
	return fmt.Sprintf("- {path: '%s', backend: 'https://b', backend_server_ca: '%s', proxy_client_cert: '%s', proxy_client_key: '%s'}\n",
		path, f.path(ca), f.path("cert"), f.path("key"))
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// TestErrors: invalid configurations fail before anything is served, with errors that name the flag and the expected
// value.
func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		mapping func(files) string
		args    func(files) []string
		want    string
	}{
		"no flags":        {want: "--mapping-file: got nothing"},
		"an unknown flag": {args: func(files) []string { return []string{"--bogus"} }, want: "unknown flag: --bogus"},
		"an argument":     {args: func(files) []string { return []string{"start"} }, want: "unknown command"},
		"shards without a root kubeconfig": {args: func(f files) []string {
			return []string{"--mapping-file=" + f.path("mapping"), "--shards-kubeconfig=" + f.path("kubeconfig")}
		}, want: "--root-kubeconfig: got nothing"},
		"a missing mapping file": {args: func(f files) []string { return append(requiredArgs(f), "--mapping-file=missing") }, want: "--mapping-file: mapping file"},
		"a missing kubeconfig":   {args: func(f files) []string { return append(requiredArgs(f), "--shards-kubeconfig=missing") }, want: "--shards-kubeconfig: missing"},
		"a missing client CA":    {args: func(f files) []string { return append(requiredArgs(f), "--client-ca-file=missing") }, want: "missing"},
		"an unknown log format":  {args: func(f files) []string { return append(requiredArgs(f), "--logging-format=xml") }, want: "logging flags"},
		"a missing backend CA":   {args: requiredArgs, mapping: func(f files) string { return f.entry("/x", "missing") }, want: "backend_server_ca"},
		"conflicting wildcards":  {args: requiredArgs, mapping: func(f files) string { return f.entry("/y/{b}", "cert") + f.entry("/{a}/x", "cert") }, want: "conflicts with"},
		"an invalid wildcard":    {args: requiredArgs, mapping: func(f files) string { return f.entry("/y/{", "cert") }, want: "bad wildcard"},
		"an unknown field":       {args: requiredArgs, mapping: func(f files) string { return f.entry("/y", "cert") + "- {paht: /z}\n" }, want: `unknown field "paht"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFiles(t)
			mapping := f.entry("/clusters/", "cert")
			if tc.mapping != nil {
				mapping += tc.mapping(f)
			}
			f.write(t, "mapping", []byte(mapping))
			var args []string
			if tc.args != nil {
				args = tc.args(f)
			}
			cmd := newCommand()
			cmd.SetArgs(append([]string{fmt.Sprintf("--secure-port=%d", freePort(t)), "--bind-address=127.0.0.1", "--root-directory=" + f.dir}, args...))
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func requiredArgs(f files) []string {
	return []string{"--mapping-file=" + f.path("mapping"), "--root-kubeconfig=" + f.path("kubeconfig"), "--shards-kubeconfig=" + f.path("kubeconfig")}
}

// TestSelfSigned starts a proxy without shards and without a certificate: it generates one in the root directory.
func TestSelfSigned(t *testing.T) {
	f := newFiles(t)
	f.write(t, "mapping", []byte(f.entry("/only/", "cert")))
	port := freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := newCommand()
	cmd.SetArgs([]string{fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1", "--root-directory=" + f.path("root"),
		"--mapping-file=" + f.path("mapping"), "--shards-kubeconfig=" + f.path("kubeconfig")})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { // between polls
		res, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err == nil && res.StatusCode == http.StatusOK {
			res.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v", err)
		}
	}
	for _, name := range []string{"apiserver.crt", "apiserver.key"} {
		if _, err := os.Stat(filepath.Join(f.path("root"), name)); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestHelpShowsExamples(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Examples:", "--mapping-file", "--authentication-drop-groups", "--service-account-lookup=false"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q", want)
		}
	}
}
