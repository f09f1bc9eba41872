package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const content = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one:6443", certificate-authority: ca.crt}}
- {name: two, cluster: {server: "https://two:6443"}}
users:
- {name: user, user: {client-certificate: absent.crt, client-key: absent.key}}
- {name: token, user: {token: secret}}
contexts:
- {name: one, context: {cluster: one, user: user}}
- {name: two, context: {cluster: two, user: token}}
`

func TestLoad(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "kubeconfig")
	for name, text := range map[string]string{"kubeconfig": content, "ca.crt": "", "empty": "{}"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if config, err := Load(file, "two"); err != nil || config.Host != "https://two:6443" || config.BearerToken != "secret" {
		t.Errorf("a context: got %v, %v", config, err)
	}
	config, err := LoadWithoutCredentials(file)
	if err != nil || config.Host != "https://one:6443" || config.CertFile != "" || config.CAFile != filepath.Join(directory, "ca.crt") {
		t.Errorf("without credentials: got %v, %v", config, err)
	}
	for name, tc := range map[string]struct{ file, context, want string }{
		"credentials that do not exist": {file, "", "absent.crt"},
		"a context that does not exist": {file, "three", `kubeconfig: has contexts "one", "two", want one called "three"`},
		"a file that does not exist":    {file + "x", "", "kubeconfigx"},
		"an empty file":                 {filepath.Join(directory, "empty"), "", "empty: invalid configuration"},
	} {
		if _, err := Load(tc.file, tc.context); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// TestLoadForServer: a token does not go to a server that is not secure.
func TestLoadForServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(strings.Replace(content, "current-context: one", "current-context: two", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{"": "https://two:6443 secret", "https://three": "https://three secret", "http://127.0.0.1:8001": "http://127.0.0.1:8001 "} {
		config, err := LoadForServer(file, server)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Host + " " + config.BearerToken; got != want {
			t.Errorf("%q: got %q, want %q", server, got, want)
		}
	}
}
