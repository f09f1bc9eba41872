package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/proxy/options"
)

// expectRoute waits until requests for a path reach a backend, or none with a status.
func (en *env) expectRoute(alice *http.Client, path, backend string, status int) {
	en.t.Helper()
	en.eventually(path+" is forwarded to "+backend, func() bool {
		got, received, _ := en.get(alice, "/clusters/"+path+"/api", nil)
		return got == status && received.Backend == backend
	})
}

// TestWatchesResume: after a disconnect, watches receive the events since then without another list.
func TestWatchesResume(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	for round := range 3 {
		i.root.CloseClientConnections()
		i.alpha.CloseClientConnections()
		name := "new" + string(rune('a'+round))
		i.alpha.putCluster(name)
		i.root.putWorkspace("org1", name, name, "Ready")
		i.expectRoute(alice, "root:org:"+name, "alpha", 200)
		i.alpha.CloseClientConnections()
		i.alpha.remove("logicalclusters", name, "cluster")
		i.expectRoute(alice, name, "", 403)
	}
	for _, f := range []*fakeServer{i.root, i.alpha} {
		for _, resource := range []string{"workspaces", "logicalclusters"} {
			if n := f.listCount(resource); n != 1 {
				t.Errorf("%s of %s were listed %d times, want once", resource, f.name, n)
			}
		}
	}
	if n := i.root.listCount("shards"); n != 1 {
		t.Errorf("shards were listed %d times, want once", n)
	}
}

// TestExpiredWatchIsListedAgain: after a long disconnect or a restart of the shard, the last resource version is too
// old.
func TestExpiredWatchIsListedAgain(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	i.expectRoute(alice, "root:org:team", "alpha", 200)
	i.alpha.CloseClientConnections()
	i.alpha.putCluster("unseen1")
	i.alpha.remove("logicalclusters", "broken1", "cluster")
	i.alpha.compact()
	i.alpha.CloseClientConnections()
	i.expectRoute(alice, "unseen1", "alpha", 200)
	i.expectRoute(alice, "broken1", "", 403)
	i.expectRoute(alice, "root:org:team", "alpha", 200)
}

// TestShardOutage: requests for it get 503 with Retry-After, all others are served, and its workspaces are
// available again when it is back.
func TestShardOutage(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	i.expectRoute(alice, "root:org:team", "alpha", 200)
	i.alpha.stop()
	i.expectRoute(alice, "root:org:team", "", 503)
	for range 20 {
		if status, got, _ := i.get(alice, "/clusters/root:org/api", nil); status != 200 || got.Backend != "root" {
			t.Fatalf("another shard's workspace: %d from %q", status, got.Backend)
		}
	}
	res, body, err := i.do(alice, http.MethodGet, "/clusters/team1/api", http.Header{"Accept": {"application/json"}})
	must(t, err)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), `"kind":"Status"`) {
		t.Errorf("%d, Retry-After %q, %s", res.StatusCode, res.Header.Get("Retry-After"), body)
	}
	// It is back at another address.
	restarted := newFakeServer(t, "alpha", i.serverCA, i.headerCA)
	restarted.putCluster("team1")
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": restarted.URL}})
	i.expectRoute(alice, "root:org:team", "alpha", 200)
}

// TestSubset: paths start in root, whether or not its shard is served.
func TestSubset(t *testing.T) {
	withLabels := func(i *env) {
		i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": i.alpha.URL + "/base"},
			"metadata": map[string]any{"name": "alpha", "resourceVersion": "1000", "labels": map[string]string{"region": "east"}}})
	}
	for name, tc := range map[string]struct {
		configure   func(*env, *options.Options)
		root, alpha int
	}{
		"one shard by name":                  {func(_ *env, o *options.Options) { o.Shards = []string{"alpha"} }, 403, 200},
		"only root":                          {func(_ *env, o *options.Options) { o.Shards = []string{"root"} }, 200, 403},
		"both shards":                        {func(_ *env, o *options.Options) { o.Shards = []string{"alpha", "root"} }, 200, 200},
		"one shard by label":                 {func(i *env, o *options.Options) { withLabels(i); o.ShardSelector = "region=east" }, 403, 200},
		"by a label of no shard and by name": {func(_ *env, o *options.Options) { o.ShardSelector, o.Shards = "region=west", []string{"root"} }, 200, 403},
	} {
		t.Run(name, func(t *testing.T) {
			i := newEnv(t, tc.configure)
			alice := i.clientFor("alice")
			for path, want := range map[string]int{"root": tc.root, "root:org": tc.root, "org1": tc.root, "root:org:team": tc.alpha, "team1": tc.alpha} {
				if got, _, body := i.get(alice, "/clusters/"+path+"/api", nil); got != want {
					t.Errorf("%s: %d, want %d; %s", path, got, want, body)
				}
			}
		})
	}
}
