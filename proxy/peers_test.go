package proxy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// peerKubeconfig is a kubeconfig with two clusters, of which the second one is current.
const peerKubeconfig = `apiVersion: v1
kind: Config
current-context: peers
contexts: [{name: peers, context: {cluster: b, user: proxy}}]
users: [{name: proxy, user: {token: %s}}]
clusters:
- {name: a, cluster: {server: "%s", insecure-skip-tls-verify: true}}
- {name: b, cluster: {server: "%s", insecure-skip-tls-verify: true}}
`

func TestLoadPeers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, token, a, b string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, fmt.Appendf(nil, peerKubeconfig, token, a, b), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := write("first", "one", "https://alpha:6443/clusters/root", "https://root:6443")
	second := write("second", "two", "https://root:6443/", "https://beta:6443")
	peers, err := loadPeers([]string{first, second})
	if err != nil {
		t.Fatal(err)
	}
	var seeds []string
	for _, seed := range peers.Seeds {
		seeds = append(seeds, seed.String())
	}
	if got := strings.Join(seeds, " "); got != "https://alpha:6443 https://root:6443 https://beta:6443" || peers.Config.BearerToken != "one" {
		t.Errorf("the peers are %s, with the token %q", got, peers.Config.BearerToken)
	}
	plain := write("plain", "three", "http://alpha", "https://root")
	if _, err := loadPeers([]string{plain}); err == nil || !strings.Contains(err.Error(), `cluster "a": got the server "http://alpha"`) {
		t.Errorf("a server without TLS: %v", err)
	}
	if _, err := loadPeers([]string{filepath.Join(dir, "absent")}); err == nil {
		t.Error("an absent file is accepted")
	}
}
