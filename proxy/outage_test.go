package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/proxy/options"
)

// leads waits until a path leads to a backend, or to none with a status.
func (i *installation) leads(alice *http.Client, path, backend string, status int) {
	i.t.Helper()
	i.eventually(path+" leads to "+backend, func() bool {
		got, seen, _ := i.get(alice, "/clusters/"+path+"/api", nil)
		return got == status && seen.Backend == backend
	})
}

// TestWatchesGoOnAfterADisconnect: what happened in between is seen, and nothing is listed again.
func TestWatchesGoOnAfterADisconnect(t *testing.T) {
	i := setUp(t)
	alice := i.as("alice")
	for round := range 3 {
		i.root.CloseClientConnections()
		i.alpha.CloseClientConnections()
		name := "new" + string(rune('a'+round))
		i.alpha.cluster(name)
		i.root.workspace("org1", name, name, "Ready")
		i.leads(alice, "root:org:"+name, "alpha", 200)
		i.alpha.CloseClientConnections()
		i.alpha.remove("logicalclusters", name, "cluster")
		i.leads(alice, name, "", 403)
	}
	for _, f := range []*far{i.root, i.alpha} {
		for _, resource := range []string{"workspaces", "logicalclusters"} {
			if n := f.listed(resource); n != 1 {
				t.Errorf("%s of %s were listed %d times, want once", resource, f.name, n)
			}
		}
	}
	if n := i.root.listed("shards"); n != 1 {
		t.Errorf("shards were listed %d times, want once", n)
	}
}

// TestAShardThatForgotIsListedAgain: a watch cannot begin where it ended after a long time, or a restart of the shard.
func TestAShardThatForgotIsListedAgain(t *testing.T) {
	i := setUp(t)
	alice := i.as("alice")
	i.leads(alice, "root:org:team", "alpha", 200)
	i.alpha.CloseClientConnections()
	i.alpha.cluster("unseen1")
	i.alpha.remove("logicalclusters", "broken1", "cluster")
	i.alpha.forget()
	i.alpha.CloseClientConnections()
	i.leads(alice, "unseen1", "alpha", 200)
	i.leads(alice, "broken1", "", 403)
	i.leads(alice, "root:org:team", "alpha", 200)
}

// TestAnOutageOfOneShardTouchesNoOther: requests for it fail and say when to come back, all others are as before, and
// when it is back so are its workspaces.
func TestAnOutageOfOneShardTouchesNoOther(t *testing.T) {
	i := setUp(t)
	alice := i.as("alice")
	i.leads(alice, "root:org:team", "alpha", 200)
	i.alpha.stop()
	i.leads(alice, "root:org:team", "", 503)
	for range 20 {
		if status, got, _ := i.get(alice, "/clusters/root:org/api", nil); status != 200 || got.Backend != "root" {
			t.Fatalf("another shard's workspace: %d from %q", status, got.Backend)
		}
	}
	res, body, err := i.try(alice, http.MethodGet, "/clusters/team1/api", http.Header{"Accept": {"application/json"}})
	must(t, err)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), `"kind":"Status"`) {
		t.Errorf("%d, Retry-After %q, %s", res.StatusCode, res.Header.Get("Retry-After"), body)
	}
	// It comes back at another address.
	again := newFar(t, "alpha", i.serverCA, i.headerCA)
	again.cluster("team1")
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": again.URL}})
	i.leads(alice, "root:org:team", "alpha", 200)
}

// TestAProxyForSomeShards leads to these alone. Paths begin in root, whether or not it is one of them.
func TestAProxyForSomeShards(t *testing.T) {
	withLabels := func(i *installation) {
		i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": i.alpha.URL + "/base"},
			"metadata": map[string]any{"name": "alpha", "resourceVersion": "1000", "labels": map[string]string{"region": "east"}}})
	}
	for sentence, tc := range map[string]struct {
		configure   func(*installation, *options.Options)
		root, alpha int
	}{
		"one by its name":                    {func(_ *installation, o *options.Options) { o.Shards = []string{"alpha"} }, 403, 200},
		"root alone":                         {func(_ *installation, o *options.Options) { o.Shards = []string{"root"} }, 200, 403},
		"both":                               {func(_ *installation, o *options.Options) { o.Shards = []string{"alpha", "root"} }, 200, 200},
		"by a label":                         {func(i *installation, o *options.Options) { withLabels(i); o.ShardSelector = "region=east" }, 403, 200},
		"by a label nobody has, and by name": {func(_ *installation, o *options.Options) { o.ShardSelector, o.Shards = "region=west", []string{"root"} }, 200, 403},
	} {
		t.Run(sentence, func(t *testing.T) {
			i := setUp(t, tc.configure)
			alice := i.as("alice")
			for path, want := range map[string]int{"root": tc.root, "root:org": tc.root, "org1": tc.root, "root:org:team": tc.alpha, "team1": tc.alpha} {
				if got, _, body := i.get(alice, "/clusters/"+path+"/api", nil); got != want {
					t.Errorf("%s: %d, want %d; %s", path, got, want, body)
				}
			}
		})
	}
}
