package services_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/syncagent/kdp/services"
)

func TestFlags(t *testing.T) {
	write := func(server string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		content := clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"a": {Server: server, CertificateAuthorityData: []byte("its CA")}},
			Contexts:       map[string]*clientcmdapi.Context{"a": {Cluster: "a"}},
			CurrentContext: "a",
		}
		if err := clientcmd.WriteToFile(content, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	workspace := write("https://internal:6443/clusters/root:corp")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("another CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		options services.Options
		server  services.Server
		refused string
	}{
		{"agents use the address of the kubeconfig", services.Options{Kubeconfig: workspace}, services.Server{URL: "https://internal:6443/clusters/root:corp", CA: []byte("its CA")}, ""},
		{"agents use another address", services.Options{Kubeconfig: workspace, ServerURL: "https://kcp.example.com", ServerCAFile: ca},
			services.Server{URL: "https://kcp.example.com/clusters/root:corp", CA: []byte("another CA")}, ""},
		{"refuses no kubeconfig", services.Options{}, services.Server{}, "--kubeconfig is required"},
		{"refuses the URL of no workspace", services.Options{Kubeconfig: write("https://internal:6443")}, services.Server{}, "/clusters/"},
		{"refuses an address with a path", services.Options{Kubeconfig: workspace, ServerURL: "https://kcp.example.com/clusters/root"}, services.Server{}, "--agent-server"},
		{"refuses an address without TLS", services.Options{Kubeconfig: workspace, ServerURL: "http://kcp.example.com"}, services.Server{}, "--agent-server"},
		{"refuses a file that is missing", services.Options{Kubeconfig: workspace, ServerCAFile: ca + "x"}, services.Server{}, "--agent-server-ca-file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, server, err := tc.options.Complete()
			switch {
			case tc.refused == "" && err != nil:
				t.Error(err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("got %v, want an error with %q", err, tc.refused)
			case tc.refused == "" && (server.URL != tc.server.URL || string(server.CA) != string(tc.server.CA)):
				t.Errorf("got %s with %s", server.URL, server.CA)
			}
		})
	}
}
