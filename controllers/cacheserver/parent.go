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

// findParent resolves the reference of a CacheServer. The result has no type where nothing is wrong with it.
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
	if result := caches.check(cache); result.Type != "" {
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
	if other, _ := desired.NewRootShard(root).CacheRef(); other != "" {
		return nil, status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidReference",
			"RootShard %s, which %s names, holds no cache: it uses CacheServer %s, which parent.cacheServerRef can name", name, field, other), nil
	}
	return desired.ParentRootShard(root), status.Result{}, nil
}

// hierarchy is the CacheServers of a namespace, by name.
type hierarchy map[string]*operatorv1alpha1.CacheServer

// check looks for what keeps a cache from standing where it wants to: nobody there, a circle, or a name that another cache
// of the hierarchy has.
func (f hierarchy) check(cache *operatorv1alpha1.CacheServer) status.Result {
	const condition, field = operatorv1alpha1.ConditionSpecHonored, "parent.cacheServerRef"
	name := cache.Spec.Parent.CacheServerRef.Name
	if f[name] == nil {
		return dependencies.NotFound("CacheServer", name, cache.Namespace, field)
	}
	top, circle := f.top(cache)
	if circle {
		return status.Stall(condition, "InvalidReference", "the caches above CacheServer %s lead back to it: correct %s of one of them", cache.Name, field)
	}
	for _, other := range f {
		if other.Name == cache.Name || desired.NewCacheServer(other).CacheName() != desired.NewCacheServer(cache).CacheName() {
			continue
		}
		// Of the two the one that chose the name gives way.
		if above, _ := f.top(other); above == top && cache.Spec.CacheName != "" {
			return status.Stall(condition, "NameTaken", "CacheServer %s of the same hierarchy is called %s, too: choose another cacheName", other.Name, cache.Spec.CacheName)
		}
	}
	return status.Result{}
}

// top is what stands above all others of a cache's hierarchy. circle says that nothing does.
func (f hierarchy) top(cache *operatorv1alpha1.CacheServer) (top corev1.TypedLocalObjectReference, circle bool) {
	seen := map[string]bool{}
	for {
		parent := cache.Spec.Parent
		here := corev1.TypedLocalObjectReference{Kind: "CacheServer", Name: cache.Name}
		switch {
		case seen[cache.Name]:
			return here, true
		case parent != nil && parent.RootShardRef != nil:
			return corev1.TypedLocalObjectReference{Kind: "RootShard", Name: parent.RootShardRef.Name}, false
		case parent != nil && parent.KubeconfigSecretRef != nil:
			return corev1.TypedLocalObjectReference{Kind: "Secret", Name: parent.KubeconfigSecretRef.Name}, false
		case parent == nil || parent.CacheServerRef == nil || f[parent.CacheServerRef.Name] == nil:
			return here, false
		}
		seen[cache.Name] = true
		cache = f[parent.CacheServerRef.Name]
	}
}
