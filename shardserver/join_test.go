package shardserver_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestASecondShardJoins: it takes the identities of root, writes them down, registers itself, and starts again without
// the root shard.
func TestASecondShardJoins(t *testing.T) {
	root := shardtesting.Start(t)
	atRoot := root.Client(t, root.Masters(t))
	identities := rootIdentities(t, atRoot)
	beta := shardtesting.StartShard(t, root, "beta")
	atBeta := beta.Client(t, beta.Masters(t))

	t.Run("the identities of root are written down", func(t *testing.T) { cached(t, atBeta, identities) })
	t.Run("a ready shard is registered", func(t *testing.T) {
		shard := registered(t, atRoot, "beta")
		if want := beta.Masters(t).Host; shard.Spec.BaseURL != want || shard.Spec.ExternalURL != want || shard.Labels["name"] != "beta" {
			t.Errorf("it is registered as %+v, %v, want URL %s", shard.Spec, shard.Labels, want)
		}
	})
	t.Run("it starts again while the root shard is away, and registers when that is back", func(t *testing.T) {
		labelled := registered(t, atRoot, "beta")
		labelled.Labels["region"] = "moon"
		must(t, atRoot.Update(shardtesting.In(t.Context(), "root"), labelled))
		must(t, beta.Stop())
		join := root.Peer(t, "beta")
		must(t, root.Stop())
		again := shardtesting.StartIn(t, beta.Directory, join)
		cached(t, again.Client(t, again.Masters(t)), identities)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func registered(t *testing.T, c client.Client, name string) *corev1alpha1.Shard {
	t.Helper()
	shard := &corev1alpha1.Shard{}
	must(t, c.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: name}, shard))
	return shard
}
