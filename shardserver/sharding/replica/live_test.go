package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestLiveShards: a shard that has loaded a snapshot of before another one joined does not take it for the list of shards.
func TestLiveShards(t *testing.T) {
	w := &env{t: t, cache: cachetesting.Start(t), clients: map[string]*client.Client{}}
	for _, shard := range []string{"root", "alpha", "beta", "joined"} {
		w.register(shard)
	}
	hasLive := func(want ...string) func() error {
		return func() error {
			live, err := w.informer.LiveShards(t.Context())
			if got := slices.Sorted(maps.Keys(live)); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("got %q, %w", got, err)
			}
			return nil
		}
	}
	old := New(Config{Shard: "alpha", Root: "root", Resources: testResources(t)})
	known := labelled("beta", "beta")
	known.Annotations = map[string]string{logicalcluster.AnnotationKey: "root"}
	old.stores[shards].put("root", "1", known)
	old.stores[shards].notSynced = nil
	if _, err := old.LiveShards(t.Context()); old.CheckSynced(shards) != nil || err == nil {
		t.Errorf("the snapshot counts: %v", err)
	}
	w.start(old)
	eventually(t, "the lists", w.checkConnected)
	if live, err := old.LiveShards(t.Context()); err == nil {
		t.Errorf("%v counts before the root shard has published all", live)
	}
	w.reportComplete("root")
	eventually(t, "the shards", hasLive("alpha", "beta", "joined", "root"))
	w.publish("delta", "system:shard", labelled("delta", "delta"))
	eventually(t, "the shard that the root shard does not know", hasLive("alpha", "beta", "delta", "joined", "root"))

	w.reportComplete("beta")
	w.start(New(Config{Shard: "root", Root: "root", Resources: testResources(t), Shards: func(context.Context) (map[string]bool, error) {
		return map[string]bool{"root": true, "planned": false}, nil
	}}))
	eventually(t, "the shards that the root shard knows", hasLive("beta", "delta", "planned", "root"))
}
