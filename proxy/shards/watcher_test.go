package shards_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// watch runs a watcher over a shard until the test ends.
func watch(t *testing.T, shard *shardtesting.Shard) *index.Index {
	t.Helper()
	idx := index.New()
	w := shards.New(shard.Masters(t), shard.Masters(t), idx)
	w.FollowTypes(workspacetypes.New(idx))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := w.WaitForShards(ctx); err != nil {
		t.Fatal(err)
	}
	return idx
}

// TestARealShardIsFollowed asks a shard as a proxy does: with the identities of its exports.
func TestARealShardIsFollowed(t *testing.T) {
	shard := shardtesting.Start(t)
	early := shard.NewWorkspace(t, "root", "early")
	idx := watch(t, shard)
	leads := func(path, cluster, kind string) {
		t.Helper()
		shardtesting.Eventually(t, path+" is known", func(context.Context) error {
			route, verdict := idx.Load().Lookup(logicalcluster.MustParsePath(path))
			if verdict != index.Found || route.Cluster.String() != cluster || route.Type != kind || route.Shard.Name != "root" {
				return fmt.Errorf("%+v, verdict %d", route, verdict)
			}
			return nil
		})
	}
	leads("root", "root", "root:root")
	leads("root:early", early.Spec.Cluster, "root:universal")
	leads(early.Spec.Cluster, early.Spec.Cluster, "root:universal")
	late := shard.NewWorkspace(t, early.Spec.Cluster, "late")
	leads("root:early:late", late.Spec.Cluster, "root:universal")

	c := shard.Client(t, shard.Admin(t))
	if err := c.Delete(shardtesting.In(t.Context(), early.Spec.Cluster), &tenancyv1alpha1.Workspace{ObjectMeta: late.ObjectMeta}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "what is gone is forgotten", func(ctx context.Context) error {
		for _, path := range []string{"root:early:late", late.Spec.Cluster} {
			if route, verdict := idx.Load().Lookup(logicalcluster.MustParsePath(path)); verdict != index.NotFound {
				return fmt.Errorf("%s: %+v, verdict %d", path, route, verdict)
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
