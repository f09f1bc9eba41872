package api

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/scope"
)

// clusterCachedResources have the identities of users' cached resources.
var clusterCachedResources = cachev1alpha1.SchemeGroupVersion.WithResource("clustercachedresources")

// findWithoutIdentity returns the resource of a request that reads a user's cached resource by its name alone, or nil if
// the scope of the context has none. A logical cluster has at most one identity of a resource; a request for
// several logical clusters reads all identities.
func (h *Handler) findWithoutIdentity(ctx context.Context, info *request.RequestInfo) (*servedResource, error) {
	gvr := client.Resource{}
	gvr.Group, gvr.Version, gvr.Resource = info.APIGroup, info.APIVersion, info.Resource
	if _, builtIn := client.FindResource(gvr.GroupResource()); builtIn || gvr.IsCached() || strings.ContainsAny(gvr.Resource, "/%.") {
		return nil, nil
	}
	if info.Verb != "get" && info.Verb != "list" && info.Verb != "watch" {
		return nil, nil
	}
	identities, kind, err := h.findIdentities(ctx, gvr)
	if err != nil || len(identities) == 0 {
		return nil, err
	}
	if target, ok := scope.FromContext(ctx); ok && !target.IsWildcard() && len(identities) == 1 {
		identified := *info
		identified.Resource = client.CachedResource(gvr.GroupVersionResource, identities.UnsortedList()[0]).Resource
		return h.findResource(&identified), nil
	}
	gvr.Kind, gvr.Namespaced = kind, info.Namespace != ""
	if cached, ok := h.cachedResources.Get(gvr); ok {
		return cached.(*servedResource), nil
	}
	all, err := h.backend.NewStoreOfAllIdentities(gvr)
	if err != nil {
		return nil, err
	}
	match := h.newServedResourceOf(gvr, all)
	h.cachedResources.Add(gvr, match)
	return match, nil
}

// findIdentities returns the identities of a resource in the scope of the context, and its kind.
func (h *Handler) findIdentities(ctx context.Context, resource client.Resource) (identities sets.Set[string], kind string, err error) {
	list, err := h.Store(clusterCachedResources).List(request.WithNamespace(ctx, ""), &internalversion.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("listing what users cache: %w", err)
	}
	identities, kind = sets.New[string](), cachedObjectKind
	for _, item := range list.(*unstructured.UnstructuredList).Items {
		var cached cachev1alpha1.ClusterCachedResource
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &cached); err != nil {
			continue // written by no shard
		}
		spec := cached.Spec
		if spec.Group != resource.Group || spec.Version != resource.Version || spec.Resource != resource.Resource || cached.Status.IdentityHash == "" {
			continue
		}
		identities.Insert(cached.Status.IdentityHash)
		if annotated := cached.Annotations[cachev1alpha1.ResourceKindAnnotationKey]; annotated != "" {
			kind = annotated
		}
	}
	return identities, kind, nil
}
