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

// startEnv is newEnv with another configuration.
func startEnv(t *testing.T, config Config, change func(*Informer)) *env {
	t.Helper()
	w := &env{t: t, cache: cachetesting.Start(t), clients: map[string]*client.Client{}}
	config.Shard, config.Root, config.Resources = "alpha", "root", testResources(t)
	m := New(config)
	change(m)
	w.start(m)
	return w
}

// TestQuota: a shard over its quota affects other shards only in that the informer is not synced.
func TestQuota(t *testing.T) {
	const limit = 20
	w := startEnv(t, Config{MaxPerShard: limit}, func(*Informer) {})
	types, _ := client.FindResource(workspaceTypes)
	w.register("root")
	w.register("beta")
	w.reportComplete("root")
	w.reportComplete("beta")
	known := func() error { return w.informer.CheckSynced(workspaceTypes) }
	eventually(t, "the informer to be synced", known)
	var names []string
	name := func(i int) string { return fmt.Sprintf("t%02d", i) }
	for i := range limit - 1 { // its report counts, too
		w.publish("beta", "abc", newWorkspaceType(name(i)))
		names = append(names, name(i))
	}
	eventually(t, "the objects up to the quota", w.hasTypes("abc", names...))
	if err := known(); err != nil {
		t.Fatalf("at the quota: %v", err)
	}

	w.publish("beta", "abc", newWorkspaceType("toomuch"))
	notSynced := func() error {
		if w.informer.CheckSynced(workspaceTypes) == nil {
			return errors.New("the informer is synced")
		}
		return nil
	}
	eventually(t, "the informer not to be synced", notSynced)
	w.publish("root", "root", newWorkspaceType("ofroot"))
	eventually(t, "objects of other shards", w.hasTypes("root", "ofroot"))
	if err := w.hasTypes("abc", names...)(); err != nil {
		t.Errorf("earlier objects: %v", err)
	}
	if err := w.informer.CheckSynced(exportConsumers); err != nil {
		t.Errorf("no object of another resource was dropped: %v", err)
	}

	for i := range limit / 4 {
		w.remove(types, "beta", "abc", name(i))
	}
	eventually(t, "all objects below the quota", w.hasTypes("abc", append(names[limit/4:], "toomuch")...))
	eventually(t, "the informer to be synced again", known)

	for i := range limit {
		w.publish("beta", "def", newWorkspaceType(name(i)))
	}
	eventually(t, "the informer not to be synced again", notSynced)
	reports, _ := client.FindResource(shardReports)
	registered, _ := client.FindResource(shards)
	w.remove(registered, "root", "root", "beta")
	w.remove(reports, "beta", "root", "beta")
	eventually(t, "the informer to be synced without the removed shard", known)
}

// TestNeverReportedShard: a shard counts as complete only if it has certainly never reported.
func TestNeverReportedShard(t *testing.T) {
	// Without a timeout, the second call is enough.
	w := startEnv(t, Config{}, func(m *Informer) { m.neverReportedTimeout = 0 })
	types, _ := client.FindResource(workspaceTypes)
	registered, _ := client.FindResource(shards)
	neverSynced := func(description string) {
		t.Helper()
		eventually(t, description, func() error {
			store := w.informer.stores[workspaceTypes]
			for range 10 {
				store.mu.RLock()
				at := store.at
				store.mu.RUnlock()
				if w.informer.completenessError(t.Context(), at) == nil {
					return errors.New("it counts as complete")
				}
			}
			return nil
		})
	}
	shard := func(name string, reported bool) {
		t.Helper()
		obj := &corev1alpha1.Shard{ObjectMeta: objectMeta(name), Spec: corev1alpha1.ShardSpec{BaseURL: "https://shard"}}
		if reported {
			obj.Status.Load = corev1.ResourceList{"objects": resource.MustParse("0")}
		}
		w.publish("root", "root", obj)
	}
	w.register("root")
	w.reportComplete("root")
	w.publish("ghost", "abc", newWorkspaceType("something"))
	eventually(t, "its object", w.hasTypes("abc", "something"))
	shard("ghost", false)
	neverSynced("a shard that has published something")

	w.remove(types, "ghost", "abc", "something")
	eventually(t, "the informer to be synced", func() error { return w.informer.CheckSynced(workspaceTypes) })

	shard("elder", true)
	neverSynced("a shard with a report recorded by root, which the cache has lost")
	w.remove(registered, "root", "root", "elder")

	shard("young", false)
	w.publish("young", "root", &shardingv1alpha1.ShardReport{ObjectMeta: objectMeta("young"), Spec: shardingv1alpha1.ShardReportSpec{Beat: 1}})
	neverSynced("a shard that reports, and is not complete")
}
