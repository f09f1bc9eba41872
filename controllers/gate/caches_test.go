package gate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/rollout"
)

func TestCacheOrder(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	cache := func(name string, parent *operatorv1alpha1.CacheParent) operatorv1alpha1.CacheServer {
		return operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: operatorv1alpha1.CacheServerSpec{Parent: parent}}
	}
	parentRef := func(name string) *operatorv1alpha1.CacheParent {
		return &operatorv1alpha1.CacheParent{CacheServerRef: ref(name)}
	}
	rootWithEmbeddedCache := operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "embedded"}}
	rootWithCacheServer := operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "served"}}
	rootWithCacheServer.Spec.Cache.Ref = ref("europe")
	shard := operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
	shard.Spec.RootShard.Reference, shard.Spec.Cache.Ref = ref("embedded"), ref("asia-south")
	all := &snapshot{
		roots:  []operatorv1alpha1.RootShard{rootWithEmbeddedCache, rootWithCacheServer},
		shards: []operatorv1alpha1.Shard{shard},
		caches: []operatorv1alpha1.CacheServer{
			cache("world", nil), cache("europe", parentRef("world")), cache("unused", parentRef("world")),
			cache("asia", &operatorv1alpha1.CacheParent{RootShardRef: ref("embedded")}), cache("asia-south", parentRef("asia")),
			cache("external", &operatorv1alpha1.CacheParent{KubeconfigSecretRef: ref("parent-kubeconfig")}),
			cache("cycle-a", parentRef("cycle-b")), cache("cycle-b", parentRef("cycle-a")), cache("orphan", parentRef("missing")),
		},
	}
	for name, want := range map[string]struct {
		stage rollout.Stage
		depth int
		roots []string
	}{
		"world":      {rollout.StageCache, 0, []string{"served"}},
		"europe":     {rollout.StageCache, 1, []string{"served"}},
		"unused":     {rollout.StageCache, 1, nil},
		"asia":       {rollout.StageRootShard, 1, []string{"embedded"}},
		"asia-south": {rollout.StageRootShard, 2, []string{"embedded"}},
		"external":   {rollout.StageCache, 0, nil},
		"cycle-a":    {rollout.StageCache, len(all.caches), nil},
		"orphan":     {rollout.StageCache, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			at := slices.IndexFunc(all.caches, func(c operatorv1alpha1.CacheServer) bool { return c.Name == name })
			stage, depth := all.cacheOrder(&all.caches[at])
			if roots := all.listRootShardsUsingCache(name); stage != want.stage || depth != want.depth || !slices.Equal(roots, want.roots) {
				t.Errorf("stage %d, depth %d, of %v", stage, depth, roots)
			}
		})
	}
}
