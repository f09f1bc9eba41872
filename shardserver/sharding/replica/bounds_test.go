package replica

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
)

// startWorld is newWorld with a mirror of its own.
func startWorld(t *testing.T, config Config, change func(*Mirror)) *world {
	t.Helper()
	w := &world{t: t, cache: cachetesting.Start(t), clients: map[string]*client.Client{}}
	config.Shard, config.Root, config.Resources = "alpha", "root", resources(t)
	m := New(config)
	change(m)
	w.start(m)
	return w
}

// TestWhatIsKeptOfAShardIsBounded, and nobody else feels it but by not knowing.
func TestWhatIsKeptOfAShardIsBounded(t *testing.T) {
	const most = 20
	w := startWorld(t, Config{MaxPerShard: most}, func(*Mirror) {})
	types, _ := client.Find(workspaceTypes)
	w.register("root")
	w.register("beta")
	w.complete("root")
	w.complete("beta")
	known := func() error { return w.mirror.Known(workspaceTypes) }
	eventually(t, "everything to be known", known)
	var names []string
	name := func(i int) string { return fmt.Sprintf("t%02d", i) }
	for i := range most - 1 { // its report is an object, too
		w.publish("beta", "abc", workspaceType(name(i)))
		names = append(names, name(i))
	}
	eventually(t, "as much as is kept", w.knows("abc", names...))
	if err := known(); err != nil {
		t.Fatalf("with as much as is kept: %v", err)
	}

	w.publish("beta", "abc", workspaceType("toomuch"))
	unknown := func() error {
		if w.mirror.Known(workspaceTypes) == nil {
			return errors.New("everything counts as known")
		}
		return nil
	}
	eventually(t, "absence to prove nothing", unknown)
	w.publish("root", "root", workspaceType("ofroot"))
	eventually(t, "what others publish", w.knows("root", "ofroot"))
	if err := w.knows("abc", names...)(); err != nil {
		t.Errorf("what was kept before: %v", err)
	}
	if err := w.mirror.Known(exportConsumers); err != nil {
		t.Errorf("of another resource nothing was refused: %v", err)
	}

	for i := range most / 4 {
		w.remove(types, "beta", "abc", name(i))
	}
	eventually(t, "everything, when there is room again", w.knows("abc", append(names[most/4:], "toomuch")...))
	eventually(t, "everything to be known again", known)

	for i := range most {
		w.publish("beta", "def", workspaceType(name(i)))
	}
	eventually(t, "absence to prove nothing again", unknown)
	reports, _ := client.Find(shardReports)
	registered, _ := client.Find(shards)
	w.remove(registered, "root", "root", "beta")
	w.remove(reports, "beta", "root", "beta")
	eventually(t, "a shard that was withdrawn to hold up nobody", known)
}

// TestAShardThatWasNeverHeardOf is not waited for, if it certainly never was.
func TestAShardThatWasNeverHeardOf(t *testing.T) {
	// With no patience, it is enough to look twice.
	w := startWorld(t, Config{}, func(m *Mirror) { m.patience = 0 })
	types, _ := client.Find(workspaceTypes)
	registered, _ := client.Find(shards)
	waits := func(sentence string) {
		t.Helper()
		eventually(t, sentence, func() error {
			table := w.mirror.tables[workspaceTypes]
			for range 10 {
				table.mu.RLock()
				at := table.at
				table.mu.RUnlock()
				if w.mirror.whyIncomplete(t.Context(), at) == nil {
					return errors.New("it is not waited for")
				}
			}
			return nil
		})
	}
	shard := func(name string, heard bool) {
		t.Helper()
		obj := &corev1alpha1.Shard{ObjectMeta: metaOf(name), Spec: corev1alpha1.ShardSpec{BaseURL: "https://shard"}}
		if heard {
			obj.Status.Load = corev1.ResourceList{"objects": resource.MustParse("0")}
		}
		w.publish("root", "root", obj)
	}
	w.register("root")
	w.complete("root")
	w.publish("ghost", "abc", workspaceType("something"))
	eventually(t, "what it published", w.knows("abc", "something"))
	shard("ghost", false)
	waits("a shard that has published something")

	w.remove(types, "ghost", "abc", "something")
	eventually(t, "nothing to wait for", func() error { return w.mirror.Known(workspaceTypes) })

	shard("elder", true)
	waits("a shard that root has heard of, with a cache that lost its report")
	w.remove(registered, "root", "root", "elder")

	shard("young", false)
	w.publish("young", "root", &shardingv1alpha1.ShardReport{ObjectMeta: metaOf("young"), Spec: shardingv1alpha1.ShardReportSpec{Beat: 1}})
	waits("a shard that reports, and is not complete")
}
