package proxy_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/sharedindex"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/options"
)

// staticSource is a source of records that do not change.
type staticSource []sharedindex.Change

func (s staticSource) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	for _, change := range s {
		emit(change)
	}
	synced()
	<-ctx.Done()
	return ctx.Err()
}

func record(t *testing.T, kind sharedindex.Kind, cluster, name string, value any) sharedindex.Change {
	t.Helper()
	encoded, err := sharedindex.Encode(value)
	must(t, err)
	change := sharedindex.Change{Key: sharedindex.Key{Kind: kind, Name: name}, Value: encoded}
	if cluster != "" {
		change.Key.Cluster = logicalcluster.MustParseName(cluster)
	}
	return change
}

// writeSharedIndex writes what the shards of the installation would write.
func (en *env) writeSharedIndex(t *testing.T, e *indextesting.Etcd) {
	workspace := func(parent, name, cluster string) sharedindex.Change {
		return record(t, sharedindex.Workspaces, parent, name, sharedindex.Workspace{Cluster: cluster})
	}
	cluster := func(name string) sharedindex.Change {
		return record(t, sharedindex.Clusters, name, "", sharedindex.Cluster{Type: "root:universal"})
	}
	for shard, source := range map[string]staticSource{
		"root": {
			record(t, sharedindex.Shards, "", "root", sharedindex.Shard{BaseURL: en.root.URL}),
			record(t, sharedindex.Shards, "", "alpha", sharedindex.Shard{BaseURL: en.alpha.URL + "/base", Labels: map[string]string{"region": "east"}}),
			cluster("root"), cluster("org1"), workspace("root", "org", "org1"), workspace("org1", "team", "team1"),
		},
		"alpha": {
			cluster("team1"), workspace("team1", "deep", "deep1"), cluster("deep1"),
			// Ignored: only the root shard defines what shards exist.
			record(t, sharedindex.Shards, "", "root", sharedindex.Shard{BaseURL: en.alpha.URL}),
			record(t, sharedindex.Shards, "", "evil", sharedindex.Shard{BaseURL: en.alpha.URL}),
		},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sharedindex.NewWriter(e.Options(), shard, source).Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
		client := e.Client()
		en.eventually(shard+" has written", func() bool {
			response, err := client.Get(t.Context(), "/kcp-index/"+shard+"/complete")
			return err == nil && response.Count == 1
		})
	}
}

// TestSharedIndexWithoutRootShard: the proxy starts while the root shard is down, and serves while etcd is down, too.
func TestSharedIndexWithoutRootShard(t *testing.T) {
	e := indextesting.Start(t)
	i := newEnv(t, func(i *env, o *options.Options) {
		i.writeSharedIndex(t, e)
		i.root.stop()
		o.SharedIndex, o.RootKubeconfig, o.ShardsKubeconfig = e.Options(), "", ""
	})
	alice := i.clientFor("alice")
	expect := func(when string) {
		t.Helper()
		for path, want := range map[string]int{"root:org:team": 200, "root:org:team:deep": 200, "team1": 200, "root:org": 503, "root": 503, "root:unknown": 403, "unknown": 403} {
			res, body, err := i.do(alice, http.MethodGet, "/clusters/"+path+"/api", nil)
			must(t, err)
			if res.StatusCode != want || want == 503 && res.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %s: %d, want %d; %s", when, path, res.StatusCode, want, body)
			}
		}
	}
	expect("the root shard is down")
	if i.alpha.listCount("workspaces")+i.alpha.listCount("logicalclusters") > 0 {
		t.Error("a shard was listed although there is a shared index")
	}
	e.Stop()
	time.Sleep(time.Second) // the proxy notices within this time
	expect("etcd is down, too")
	if status, _, _ := i.get(alice, "/readyz", nil); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
}

// TestSubsetWithSharedIndex: paths lead through all shards, requests are forwarded to the selected ones only.
func TestSubsetWithSharedIndex(t *testing.T) {
	e := indextesting.Start(t)
	i := newEnv(t, func(i *env, o *options.Options) {
		i.writeSharedIndex(t, e)
		o.SharedIndex, o.ShardSelector = e.Options(), "region=east"
	})
	alice := i.clientFor("alice")
	for path, want := range map[string]int{"root:org:team:deep": 200, "root:org": 403, "root": 403} {
		if got, _, body := i.get(alice, "/clusters/"+path+"/api", nil); got != want {
			t.Errorf("%s: %d, want %d; %s", path, got, want, body)
		}
	}
}
