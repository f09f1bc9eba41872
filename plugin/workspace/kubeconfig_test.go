package workspace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// entries is a kubeconfig in short form: contexts as "cluster user namespace", clusters as server URLs.
type entries struct {
	current  string
	contexts map[string][3]string
	clusters map[string]string
}

func (e entries) config() *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = e.current
	for name, context := range e.contexts {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: context[0], AuthInfo: context[1], Namespace: context[2]}
	}
	for name, server := range e.clusters {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server, TLSServerName: "sni"}
	}
	return config
}

func newEntries(t *testing.T, config *clientcmdapi.Config) entries {
	t.Helper()
	e := entries{current: config.CurrentContext, contexts: map[string][3]string{}, clusters: map[string]string{}}
	for name, context := range config.Contexts {
		e.contexts[name] = [3]string{context.Cluster, context.AuthInfo, context.Namespace}
	}
	for name, cluster := range config.Clusters {
		e.clusters[name] = cluster.Server
		if cluster.TLSServerName != "sni" {
			t.Errorf("cluster %q lost its TLS settings", name)
		}
	}
	return e
}

var (
	// fromUser is the kubeconfig of a user who has never used the plugins.
	fromUser = entries{
		current:  "mine",
		contexts: map[string][3]string{"mine": {"kcp", "alice", "ns"}},
		clusters: map[string]string{"kcp": "https://h/clusters/root"},
	}
	// inOrg is fromUser after "ws org".
	inOrg = entries{
		current: currentEntry,
		contexts: map[string][3]string{
			"mine": {"kcp", "alice", "ns"}, currentEntry: {currentEntry, "alice", "ns"}, previousEntry: {"kcp", "alice", "ns"},
		},
		clusters: map[string]string{"kcp": "https://h/clusters/root", currentEntry: "https://h/clusters/root:org"},
	}
	// inTeam is inOrg after "ws team".
	inTeam = entries{
		current: currentEntry,
		contexts: map[string][3]string{
			"mine": {"kcp", "alice", "ns"}, currentEntry: {currentEntry, "alice", "ns"}, previousEntry: {previousEntry, "alice", "ns"},
		},
		clusters: map[string]string{
			"kcp": "https://h/clusters/root", currentEntry: "https://h/clusters/root:org:team", previousEntry: "https://h/clusters/root:org",
		},
	}
)

func TestKubeconfigChanges(t *testing.T) {
	type change = func(*clientcmdapi.Config) (*clientcmdapi.Config, error)
	to := func(url string) change {
		return func(config *clientcmdapi.Config) (*clientcmdapi.Config, error) { return switchTo(config, url) }
	}
	for name, tc := range map[string]struct {
		before entries
		change change
		after  entries
		err    string
	}{
		"the first switch leaves the user's context alone": {before: fromUser, change: to("https://h/clusters/root:org"), after: inOrg},
		"the second switch keeps a copy of the old cluster": {
			before: inOrg, change: to("https://h/clusters/root:org:team"), after: inTeam,
		},
		"going back exchanges our own clusters": {
			before: inTeam, change: switchBack,
			after: entries{
				current: currentEntry, contexts: inTeam.contexts,
				clusters: map[string]string{
					"kcp": "https://h/clusters/root", currentEntry: "https://h/clusters/root:org", previousEntry: "https://h/clusters/root:org:team",
				},
			},
		},
		"going back to the user's cluster uses it without a copy": {
			before: inOrg, change: switchBack,
			after: entries{
				current: currentEntry,
				contexts: map[string][3]string{
					"mine": {"kcp", "alice", "ns"}, currentEntry: {"kcp", "alice", "ns"}, previousEntry: {previousEntry, "alice", "ns"},
				},
				clusters: map[string]string{
					"kcp": "https://h/clusters/root", currentEntry: "https://h/clusters/root:org", previousEntry: "https://h/clusters/root:org",
				},
			},
		},
		"going back from a context of the user remembers that context": {
			before: entries{current: "mine", contexts: inTeam.contexts, clusters: inTeam.clusters}, change: switchBack,
			after: entries{
				current: currentEntry,
				contexts: map[string][3]string{
					"mine": {"kcp", "alice", "ns"}, currentEntry: {currentEntry, "alice", "ns"}, previousEntry: {"kcp", "alice", "ns"},
				},
				clusters: map[string]string{
					"kcp": "https://h/clusters/root", currentEntry: "https://h/clusters/root:org", previousEntry: "https://h/clusters/root:org",
				},
			},
		},
		"going back needs a previous workspace": {before: fromUser, change: switchBack, err: "no previous workspace found in kubeconfig"},
		"a missing context is named": {
			before: entries{current: "gone", contexts: fromUser.contexts}, change: to("https://h/clusters/root"), err: `current "gone" context not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := tc.before.config()
			changed, err := tc.change(config)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.after, newEntries(t, changed), cmp.AllowUnexported(entries{})); diff != "" {
				t.Errorf("kubeconfig (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.before.config(), config); diff != "" {
				t.Errorf("the input was modified:\n%s", diff)
			}
		})
	}
}

func TestNamedContext(t *testing.T) {
	const url = "https://h/clusters/root:org"
	for name, tc := range map[string]struct {
		wanted  namedContext
		line    string
		current string
		err     string
	}{
		"a new one becomes current":          {namedContext{name: "new", serverURL: url}, `Created context "new" and switched to it.`, "new", ""},
		"a new one may stay aside":           {namedContext{name: "new", serverURL: url, keepCurrent: true}, `Created context "new".`, currentEntry, ""},
		"an existing one is not overwritten": {namedContext{name: "mine", serverURL: url}, "", "", `context "mine" already exists in kubeconfig, use --overwrite to update it`},
		"an existing one is overwritten with --overwrite": {
			namedContext{name: "mine", serverURL: url, overwrite: true}, `Updated context "mine" and switched to it.`, "mine", "",
		},
		"the current one stays current": {namedContext{name: currentEntry, serverURL: url, overwrite: true}, `Updated context "workspace.kcp.io/current".`, currentEntry, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed, line, err := tc.wanted.add(inOrg.config())
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || line != tc.line {
				t.Fatalf("got %q, %v", line, err)
			}
			got := newEntries(t, changed)
			if got.current != tc.current || got.clusters[tc.wanted.name] != url || got.contexts[tc.wanted.name] != [3]string{tc.wanted.name, "alice", "ns"} {
				t.Fatalf("got %+v", got)
			}
		})
	}
}
