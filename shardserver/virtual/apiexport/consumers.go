package apiexport

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// bindingLister reads the bindings of consumers.
type bindingLister struct {
	reader *storage.Reader[*apisv1alpha2.APIBinding]
}

// lister lists the bindings of the context's logical cluster.
type lister func(context.Context) ([]*apisv1alpha2.APIBinding, error)

// listCached lists from the watch cache, listLatest with a consistent read.
func (b bindingLister) listCached(ctx context.Context) ([]*apisv1alpha2.APIBinding, error) {
	return b.reader.List(ctx, "", nil)
}

func (b bindingLister) listLatest(ctx context.Context) ([]*apisv1alpha2.APIBinding, error) {
	return b.reader.ListLatest(ctx, "", nil)
}

// listByExport returns the bindings of a logical cluster to the export of a set.
func (b bindingLister) listByExport(ctx context.Context, set *apiSet, cluster logicalcluster.Name, list lister) ([]*apisv1alpha2.APIBinding, error) {
	all, err := list(logicalcluster.With(ctx, cluster))
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of %q: %w", cluster, err)
	}
	return slices.DeleteFunc(all, func(binding *apisv1alpha2.APIBinding) bool { return !bindsExport(binding, set.name) }), nil
}

// bindsExport reports whether a binding binds the export. Until its status names the export's logical cluster, only a reference
// by the name of that cluster counts.
func bindsExport(binding *apisv1alpha2.APIBinding, export bindings.ExportKey) bool {
	reference := binding.Spec.Reference.Export
	if reference == nil || reference.Name != export.Name {
		return false
	}
	if binding.Status.APIExportClusterName != "" {
		return binding.Status.APIExportClusterName == export.Cluster.String()
	}
	return reference.Path == export.Cluster.String()
}

// checkBinding returns whether a binding allows the provider a verb on an offered resource or a subresource of it. Subresources
// that are not served need no other answer than the resource.
func checkBinding(binding *apisv1alpha2.APIBinding, found *apiResource, verb, subresource string) stepResult {
	switch {
	case found.subresources[subresource] != nil:
		return checkSubresource(binding, found, verb, subresource)
	case found.isOwn():
		if !bindsResource(binding, found) {
			return newDenied("binding %q has not bound %s with the identity of the export", binding.Name, found.GroupResource)
		}
		return newAllowed("bound by %q", binding.Name)
	case found.GroupResource == apiBindings && slices.Contains(readVerbs, verb):
		return newAllowed("binding %q itself", binding.Name)
	case found.claim == nil:
		return newDenied("bindings can only be read without a claim")
	}
	if found.virtual {
		return checkVirtualClaim(binding, found, verb)
	}
	return checkClaim(binding, found.claim, verb)
}

// checkVirtualClaim checks the claim of a resource with virtual storage. It allows all objects or none, because no object has a
// label of the claim. A request lists what the consumer has bound of the export that owns the storage.
func checkVirtualClaim(binding *apisv1alpha2.APIBinding, found *apiResource, verb string) stepResult {
	if accepted := findEffectiveClaim(binding, found.claim); accepted != nil && !accepted.Selector.MatchAll {
		return newDenied("binding %q accepts the claim on %s by labels, which objects with virtual storage do not have", binding.Name, found.GroupResource)
	}
	return checkClaim(binding, found.claim, verb)
}

// listClaimedClusters returns the logical clusters of this shard with a binding that allows a verb on a claimed resource.
func (b bindingLister) listClaimedClusters(ctx context.Context, set *apiSet, found *apiResource, verb string) (sets.Set[logicalcluster.Name], error) {
	key, value := apiindex.ExportLabel(set.name)
	all, err := b.reader.ListLatest(logicalcluster.With(ctx, logicalcluster.Wildcard), "", labels.SelectorFromSet(labels.Set{key: value}))
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of the export: %w", err)
	}
	clusters := sets.New[logicalcluster.Name]()
	for _, binding := range all {
		if bindsExport(binding, set.name) && checkBinding(binding, found, verb, "").allowed {
			clusters.Insert(logicalcluster.Of(binding))
		}
	}
	return clusters, nil
}

// checkSubresource checks the claim of a subresource, and the claim of the resource, which has to give access to the object.
func checkSubresource(binding *apisv1alpha2.APIBinding, found *apiResource, verb, subresource string) stepResult {
	if result := checkClaim(binding, found.claim, "get"); !result.allowed {
		return result
	}
	return checkClaim(binding, found.subresources[subresource], verb)
}

// checkClaim checks that a binding accepts a claim of the export with a verb.
func checkClaim(binding *apisv1alpha2.APIBinding, claim *apisv1alpha2.PermissionClaim, verb string) stepResult {
	claimed := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
	accepted := findEffectiveClaim(binding, claim)
	switch {
	case accepted == nil:
		return newDenied("binding %q does not accept the claim on %s", binding.Name, claimed)
	case !accepted.Allows(verb):
		return newDenied("binding %q accepts the claim on %s without %s", binding.Name, claimed, verb)
	}
	return newAllowed("binding %q accepts the claim on %s", binding.Name, claimed)
}

// bindsResource reports whether a binding has bound a resource with the current identity of the export.
func bindsResource(binding *apisv1alpha2.APIBinding, found *apiResource) bool {
	return slices.ContainsFunc(binding.Status.BoundResources, func(bound apisv1alpha2.BoundAPIResource) bool {
		return bound.Group == found.Group && bound.Resource == found.Resource && bound.Schema.IdentityHash == found.identity
	})
}

// findEffectiveClaim returns the effective claim for a claim of the export, or nil if the binding does not accept it.
func findEffectiveClaim(binding *apisv1alpha2.APIBinding, claim *apisv1alpha2.PermissionClaim) *apiindex.EffectiveClaim {
	// Only this claim matters; an export may have thousands.
	claimingExport := &apisv1alpha2.APIExport{Spec: apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{*claim}}}
	effective := apiindex.EffectiveClaims(binding, claimingExport)
	if len(effective) == 0 {
		return nil
	}
	return &effective[0]
}

func groupResource(attributes authorizer.Attributes) schema.GroupResource {
	return schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
}
