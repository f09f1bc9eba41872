package cacheserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

// findParent resolves the cache above a CacheServer. The parent is nil without one, or if the result has a type.
func findParent(ctx context.Context, c apply.Cluster, cache *operatorv1alpha1.CacheServer) (*desired.CacheParent, status.Result, error) {
	parent := cache.Spec.Parent
	switch {
	case parent == nil:
		return nil, status.Result{}, nil
	case parent.KubeconfigSecretRef != nil:
		return desired.ParentKubeconfig(parent.KubeconfigSecretRef.Name), status.Result{}, nil
	case parent.RootShardRef != nil:
		return findRootShard(ctx, c, cache.Namespace, parent.RootShardRef.Name)
	case parent.CacheServerRef == nil: // the schema admits none such
		return nil, status.Result{}, nil
	}
	var all operatorv1alpha1.CacheServerList
	if err := c.List(ctx, &all, client.InNamespace(cache.Namespace)); err != nil {
		return nil, status.Result{}, err
	}
	caches := hierarchy{}
	for i := range all.Items {
		caches[all.Items[i].Name] = &all.Items[i]
	}
	if result := caches.validate(cache); result.Type != "" {
		return nil, result, nil
	}
	return desired.ParentCacheServer(caches[parent.CacheServerRef.Name]), status.Result{}, nil
}

func findRootShard(ctx context.Context, c apply.Cluster, namespace, name string) (*desired.CacheParent, status.Result, error) {
	const field = "parent.rootShardRef"
	root, err := apply.Get[operatorv1alpha1.RootShard](ctx, c, namespace, name)
	switch {
	case err != nil:
		return nil, status.Result{}, err
	case root == nil:
		return nil, dependencies.NotFound("RootShard", name, namespace, field), nil
	}
	if unknown := dependencies.ResolveCAs(operatorv1alpha1.ConditionSpecHonored, root); unknown.Type != "" {
		return nil, unknown, nil
	}
	if other, _ := desired.NewRootShard(root).CacheRef(); other != "" {
		return nil, status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidReference",
			"RootShard %s, which %s names, embeds no cache: it uses CacheServer %s, which parent.cacheServerRef can name", name, field, other), nil
	}
	return desired.ParentRootShard(root), status.Result{}, nil
}

// hierarchy is the CacheServers of a namespace, by name.
type hierarchy map[string]*operatorv1alpha1.CacheServer

// validate validates the position of a cache: its parent exists, there is no cycle, and no other cache of the hierarchy
// has its name.
func (h hierarchy) validate(cache *operatorv1alpha1.CacheServer) status.Result {
	const condition, field = operatorv1alpha1.ConditionSpecHonored, "parent.cacheServerRef"
	name := cache.Spec.Parent.CacheServerRef.Name
	if h[name] == nil {
		return dependencies.NotFound("CacheServer", name, cache.Namespace, field)
	}
	top, cycle := h.top(cache)
	if cycle {
		return status.Stall(condition, "InvalidReference", "the parents of CacheServer %s form a cycle: correct %s of one of them", cache.Name, field)
	}
	for _, other := range h {
		if other.Name == cache.Name || desired.NewCacheServer(other).CacheName() != desired.NewCacheServer(cache).CacheName() {
			continue
		}
		// Of two caches with the same name, the one that sets cacheName is invalid.
		if above, _ := h.top(other); above == top && cache.Spec.CacheName != "" {
			return status.Stall(condition, "NameTaken", "CacheServer %s of the same hierarchy is named %s, too: choose another cacheName", other.Name, cache.Spec.CacheName)
		}
	}
	return status.Result{}
}

// top returns the top of the hierarchy of a cache, or that it is in a cycle.
func (h hierarchy) top(cache *operatorv1alpha1.CacheServer) (top corev1.TypedLocalObjectReference, cycle bool) {
	visited := map[string]bool{}
	for {
		parent := cache.Spec.Parent
		here := corev1.TypedLocalObjectReference{Kind: "CacheServer", Name: cache.Name}
		switch {
		case visited[cache.Name]:
			return here, true
		case parent != nil && parent.RootShardRef != nil:
			return corev1.TypedLocalObjectReference{Kind: "RootShard", Name: parent.RootShardRef.Name}, false
		case parent != nil && parent.KubeconfigSecretRef != nil:
			return corev1.TypedLocalObjectReference{Kind: "Secret", Name: parent.KubeconfigSecretRef.Name}, false
		case parent == nil || parent.CacheServerRef == nil || h[parent.CacheServerRef.Name] == nil:
			return here, false
		}
		visited[cache.Name] = true
		cache = h[parent.CacheServerRef.Name]
	}
}
