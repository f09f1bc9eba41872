package shards_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// runWatcher runs a watcher over a shard until the test ends.
func runWatcher(t *testing.T, shard *shardtesting.Shard, peers *shards.Peers) *index.Index {
	t.Helper()
	idx := index.New()
	w := shards.NewWatcher(shards.Config{Root: shard.Masters(t), Peers: peers, Shards: shard.Masters(t), Index: idx, Types: workspacetypes.New(idx)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := w.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return idx
}

// TestWatcherWithShard watches a real shard, with the identities of its exports.
func TestWatcherWithShard(t *testing.T) {
	shard := shardtesting.Start(t)
	early := shard.NewWorkspace(t, "root", "early")
	idx := runWatcher(t, shard, nil)
	expectFound := func(path, cluster, workspaceType string) {
		t.Helper()
		shardtesting.Eventually(t, path+" is indexed", func(context.Context) error {
			route, resolution := idx.Load().Resolve(logicalcluster.MustParsePath(path))
			if resolution != index.Found || route.Cluster.String() != cluster || route.Type != workspaceType || route.Shard.Name != "root" {
				return fmt.Errorf("%+v, resolution %d", route, resolution)
			}
			return nil
		})
	}
	expectFound("root", "root", "root:root")
	expectFound("root:early", early.Spec.Cluster, "root:universal")
	expectFound(early.Spec.Cluster, early.Spec.Cluster, "root:universal")
	late := shard.NewWorkspace(t, early.Spec.Cluster, "late")
	expectFound("root:early:late", late.Spec.Cluster, "root:universal")

	t.Run("through peers", func(t *testing.T) {
		at, err := url.Parse(shard.Masters(t).Host)
		must(t, err)
		down := &url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", "1")}
		seeds := []*url.URL{down, {Scheme: at.Scheme, Host: at.Host}}
		if names := runWatcher(t, shard, &shards.Peers{Config: shard.Admin(t), Seeds: seeds}).Load().ShardNames(); !slices.Equal(names, []string{"root"}) {
			t.Errorf("the shards are %v", names)
		}
	})

	c := shard.Client(t, shard.Admin(t))
	if err := c.Delete(shardtesting.In(t.Context(), early.Spec.Cluster), &tenancyv1alpha1.Workspace{ObjectMeta: late.ObjectMeta}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the workspace and its cluster are removed", func(ctx context.Context) error {
		for _, path := range []string{"root:early:late", late.Spec.Cluster} {
			if route, resolution := idx.Load().Resolve(logicalcluster.MustParsePath(path)); resolution != index.NotFound {
				return fmt.Errorf("%s: %+v, resolution %d", path, route, resolution)
			}
		}
		return nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
