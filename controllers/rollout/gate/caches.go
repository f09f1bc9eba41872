package gate

import (
	"slices"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/rollout"
)

// rootShardsUsing are the RootShards that a cache server works for: directly, for one of their shards, or for a cache below it.
// Where caches are above each other in a circle, each is looked at once.
func (o *snapshot) rootShardsUsing(cache string) []string {
	out := map[string]bool{}
	o.collectRootShards(cache, out, map[string]bool{})
	var names []string
	for i := range o.roots {
		if out[o.roots[i].Name] {
			names = append(names, o.roots[i].Name)
		}
	}
	return names
}

func (o *snapshot) collectRootShards(cache string, out, seen map[string]bool) {
	if seen[cache] {
		return
	}
	seen[cache] = true
	for i := range o.roots {
		if ref := o.roots[i].Spec.Cache.Ref; ref != nil && ref.Name == cache {
			out[o.roots[i].Name] = true
		}
	}
	for i := range o.shards {
		if ref := o.shards[i].Spec.Cache.Ref; ref != nil && ref.Name == cache {
			for _, root := range referencedName(o.shards[i].Spec.RootShard.Reference) {
				out[root] = true
			}
		}
	}
	for i := range o.caches {
		parent := o.caches[i].Spec.Parent
		if parent == nil {
			continue
		}
		if o.caches[i].Name == cache {
			for _, root := range referencedName(parent.RootShardRef) {
				out[root] = true
			}
		}
		if slices.Contains(referencedName(parent.CacheServerRef), cache) {
			o.collectRootShards(o.caches[i].Name, out, seen)
		}
	}
}

// cacheOrder is where a cache server stands in the order: after all that are above it. One below the cache of a root
// shard follows that.
func (o *snapshot) cacheOrder(cache *operatorv1alpha1.CacheServer) (stage rollout.Stage, depth int) {
	for range o.caches { // no longer than any way up that is no circle
		parent := cache.Spec.Parent
		if parent == nil {
			break
		}
		if parent.RootShardRef != nil {
			return rollout.StageRootShard, depth + 1
		}
		above := slices.IndexFunc(o.caches, func(c operatorv1alpha1.CacheServer) bool {
			return slices.Contains(referencedName(parent.CacheServerRef), c.Name)
		})
		if above < 0 {
			break
		}
		cache, depth = &o.caches[above], depth+1
	}
	return rollout.StageCache, depth
}
