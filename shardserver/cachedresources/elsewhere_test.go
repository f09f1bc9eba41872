package cachedresources_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// newScattered is newSite with root, the provider and the consumers on three shards.
func newScattered(t *testing.T) *site {
	t.Helper()
	root := shardtesting.Start(t, cacheAPIs)
	s := &site{root: root, shard: shardtesting.StartShard(t, root, "alpha", cacheAPIs), consumers: shardtesting.StartShard(t, root, "beta", cacheAPIs)}
	s.c = s.shard.Client(t, s.shard.Admin(t))
	masters := root.Client(t, root.Masters(t))
	for _, name := range []string{"alpha", "beta"} {
		shardtesting.Eventually(t, "shard "+name+" being ready", func(ctx context.Context) error {
			shard := &corev1alpha1.Shard{}
			if err := masters.Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: name}, shard); err != nil {
				return err
			}
			if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) {
				return fmt.Errorf("conditions %+v", shard.Status.Conditions)
			}
			return nil
		})
	}
	s.provider, s.consumer = s.workspace(t, "provider", s.shard), s.workspace(t, "consumer", s.consumers)
	return s
}

// workspace makes a workspace on a shard, and returns its logical cluster.
func (s *site) workspace(t *testing.T, name string, on *shardtesting.Shard) string {
	t.Helper()
	at := "root"
	switch {
	case on == s.root:
	case on == s.shard:
		at = "alpha"
	default:
		at = "beta"
	}
	return shardtesting.NewWorkspace(t, s.root.Client(t, s.root.Admin(t)), "root", name, shardtesting.OnShard(at)).Spec.Cluster
}

// TestCachedResourcesAcrossShards is TestCachedResources with provider and consumers on different shards.
func TestCachedResourcesAcrossShards(t *testing.T) {
	newScattered(t).story(t)
}
