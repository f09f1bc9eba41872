package gate

import (
	"slices"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/rollout"
)

// listRootShardsUsingCache returns the names of the RootShards that use a cache server: directly, for one of their
// shards, or through a cache below it. In a cycle of caches each is visited once.
func (s *snapshot) listRootShardsUsingCache(cache string) []string {
	out := map[string]bool{}
	s.collectRootShardsUsingCache(cache, out, map[string]bool{})
	var names []string
	for i := range s.roots {
		if out[s.roots[i].Name] {
			names = append(names, s.roots[i].Name)
		}
	}
	return names
}

func (s *snapshot) collectRootShardsUsingCache(cache string, out, visited map[string]bool) {
	if visited[cache] {
		return
	}
	visited[cache] = true
	for i := range s.roots {
		if ref := s.roots[i].Spec.Cache.Ref; ref != nil && ref.Name == cache {
			out[s.roots[i].Name] = true
		}
	}
	for i := range s.shards {
		if ref := s.shards[i].Spec.Cache.Ref; ref != nil && ref.Name == cache {
			for _, root := range refNames(s.shards[i].Spec.RootShard.Reference) {
				out[root] = true
			}
		}
	}
	for i := range s.caches {
		parent := s.caches[i].Spec.Parent
		if parent == nil {
			continue
		}
		if s.caches[i].Name == cache {
			for _, root := range refNames(parent.RootShardRef) {
				out[root] = true
			}
		}
		if slices.Contains(refNames(parent.CacheServerRef), cache) {
			s.collectRootShardsUsingCache(s.caches[i].Name, out, visited)
		}
	}
}

// cacheOrder returns the position of a cache server in the order: after all caches above it. A cache below the embedded cache of a root
// shard comes after that root shard.
func (s *snapshot) cacheOrder(cache *operatorv1alpha1.CacheServer) (stage rollout.Stage, depth int) {
	for range s.caches { // bounds a cycle
		parent := cache.Spec.Parent
		if parent == nil {
			break
		}
		if parent.RootShardRef != nil {
			return rollout.StageRootShard, depth + 1
		}
		above := slices.IndexFunc(s.caches, func(c operatorv1alpha1.CacheServer) bool {
			return slices.Contains(refNames(parent.CacheServerRef), c.Name)
		})
		if above < 0 {
			break
		}
		cache, depth = &s.caches[above], depth+1
	}
	return rollout.StageCache, depth
}
