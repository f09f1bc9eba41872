package proxy_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/options"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
)

// said is what a shard says once.
type said []sharedindex.Change

func (s said) Stream(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
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

// tell writes what the shards of the installation would write.
func (i *installation) tell(t *testing.T, e *indextesting.Etcd) {
	workspace := func(parent, name, cluster string) sharedindex.Change {
		return record(t, sharedindex.Workspaces, parent, name, sharedindex.Workspace{Cluster: cluster})
	}
	cluster := func(name string) sharedindex.Change {
		return record(t, sharedindex.Clusters, name, "", sharedindex.Cluster{Type: "root:universal"})
	}
	for shard, source := range map[string]said{
		"root": {
			record(t, sharedindex.Shards, "", "root", sharedindex.Shard{BaseURL: i.root.URL}),
			record(t, sharedindex.Shards, "", "alpha", sharedindex.Shard{BaseURL: i.alpha.URL + "/base", Labels: map[string]string{"region": "east"}}),
			cluster("root"), cluster("org1"), workspace("root", "org", "org1"), workspace("org1", "team", "team1"),
		},
		"alpha": {
			cluster("team1"), workspace("team1", "deep", "deep1"), cluster("deep1"),
			// Only the root shard says what shards there are.
			record(t, sharedindex.Shards, "", "root", sharedindex.Shard{BaseURL: i.alpha.URL}),
			record(t, sharedindex.Shards, "", "evil", sharedindex.Shard{BaseURL: i.alpha.URL}),
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
		i.eventually(shard+" has written", func() bool {
			answer, err := client.Get(t.Context(), "/kcp-index/"+shard+"/complete")
			return err == nil && answer.Count == 1
		})
	}
}

// TestASharedIndexNeedsNoShard: the proxy starts with the root shard down, and goes on when etcd is, too.
func TestASharedIndexNeedsNoShard(t *testing.T) {
	e := indextesting.Start(t)
	i := setUp(t, func(i *installation, o *options.Options) {
		i.tell(t, e)
		i.root.stop()
		o.SharedIndex, o.RootKubeconfig, o.ShardsKubeconfig = e.Options(), "", ""
	})
	alice := i.as("alice")
	expect := func(when string) {
		t.Helper()
		for path, want := range map[string]int{"root:org:team": 200, "root:org:team:deep": 200, "team1": 200, "root:org": 503, "root": 503, "root:nobody": 403, "nobody": 403} {
			res, body, err := i.try(alice, http.MethodGet, "/clusters/"+path+"/api", nil)
			must(t, err)
			if res.StatusCode != want || want == 503 && res.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %s: %d, want %d; %s", when, path, res.StatusCode, want, body)
			}
		}
	}
	expect("the root shard is down")
	if i.alpha.listed("workspaces")+i.alpha.listed("logicalclusters") > 0 {
		t.Error("a shard was asked for what is in the shared index")
	}
	e.Stop()
	time.Sleep(time.Second) // it finds out by then
	expect("etcd is down, too")
	if status, _, _ := i.get(alice, "/readyz", nil); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
}

// TestSomeShardsOfASharedIndex: paths lead through all shards, requests to the chosen ones.
func TestSomeShardsOfASharedIndex(t *testing.T) {
	e := indextesting.Start(t)
	i := setUp(t, func(i *installation, o *options.Options) {
		i.tell(t, e)
		o.SharedIndex, o.ShardSelector = e.Options(), "region=east"
	})
	alice := i.as("alice")
	for path, want := range map[string]int{"root:org:team:deep": 200, "root:org": 403, "root": 403} {
		if got, _, body := i.get(alice, "/clusters/"+path+"/api", nil); got != want {
			t.Errorf("%s: %d, want %d; %s", path, got, want, body)
		}
	}
}
