package apiexport

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

var (
	// allVerbs are the verbs of the resources that the export offers or claims, readVerbs those of bindings and of resources
	// with virtual storage.
	allVerbs    = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	readVerbs   = metav1.Verbs{"get", "list", "watch"}
	statusVerbs = metav1.Verbs{"get", "patch", "update"}

	apiBindings = apisv1alpha2.Resource("apibindings")
)

// statusSubresource needs no claim of its own.
const statusSubresource = "status"

// Exports returns exports and schemas, as *apiindex.Resolver does. Methods return a Kubernetes NotFound error for an
// object that does not exist.
type Exports interface {
	Get(ctx context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error)
	ListByIdentity(ctx context.Context, hash string) ([]*apisv1alpha2.APIExport, error)
	GetSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// apiSet is the API that an export offers in its virtual workspace, as of the watch cache.
type apiSet struct {
	exports Exports
	// view restricts the set; nil for all.
	view View
	name bindings.ExportKey
	// customSubresources means that custom subresources of other exports can be claimed.
	customSubresources bool
	// identities finds what claims without an identity are for, in the logical cluster of a consumer, or in all.
	identities identityResolver
	cluster    logicalcluster.Name
	// export is nil if it does not exist or has no identity. The API is empty then.
	export *apisv1alpha2.APIExport
}

// apiResource is one resource of an API set.
type apiResource struct {
	schema.GroupResource
	// identity is the identity hash under which objects are stored; empty for built-in resources, and if identities decides.
	identity string
	// agnostic means that the claim of a resource that is not built in names no identity. Then identities are those that consumers have bound:
	// at most one in the logical cluster of a consumer, which is the identity, too.
	agnostic   bool
	identities []string
	// schema is the schema of the resource; nil for what is compiled in.
	schema *apisv1alpha1.APIResourceSchema
	// claim is the export's claim on the resource; nil for its own resources and for bindings without a claim.
	claim *apisv1alpha2.PermissionClaim
	// subresources are the export's claims of subresources of a resource that it claims, by name: of a built-in resource, or those that
	// the owner of the resource defines.
	subresources map[string]*apisv1alpha2.PermissionClaim
	// definer is the export that defines the subresources; nil for a built-in resource.
	definer *apisv1alpha2.APIExport
	// entry is what the view has for the resource; empty without a view.
	entry string
	// virtual means that the objects are not stored, but read from elsewhere; owner is the export whose virtual storage it is.
	virtual bool
	owner   bindings.ExportKey
	// verbs are the verbs of the resource, status those of its status subresource.
	verbs, status metav1.Verbs
}

// isOwn reports whether the resource is one of the export itself.
func (a *apiResource) isOwn() bool { return a.identity != "" && a.claim == nil }

// apiSetFrom returns the API set of the export of the context's request.
func apiSetFrom(ctx context.Context, from apiSource) (*apiSet, error) {
	request, ok := virtual.From(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(errNoExport)
	}
	return apiSetFor(ctx, from, request)
}

// apiSource is what API sets are made from.
type apiSource struct {
	exports Exports
	view    View
	// customSubresources is apiSet.customSubresources.
	customSubresources bool
	identities         identityResolver
}

func apiSetFor(ctx context.Context, from apiSource, request virtual.Request) (*apiSet, error) {
	cluster, err := logicalcluster.ParseName(request.Owner[0])
	if err != nil {
		return nil, apierrors.NewInternalError(err) // resolve has validated it
	}
	set := &apiSet{
		exports: from.exports, view: from.view, customSubresources: from.customSubresources, identities: from.identities,
		name: bindings.ExportKey{Cluster: cluster, Name: request.Owner[1]}, cluster: request.Cluster,
	}
	export, err := from.exports.Get(ctx, set.name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("reading APIExport %q of %q: %w", set.name.Name, cluster, err)
	case export.Status.IdentityHash != "":
		set.export = export
	}
	return set, nil
}

// find returns the offer of a resource, or nil. Resources of the export take precedence over claims.
func (s *apiSet) find(ctx context.Context, gr schema.GroupResource) (*apiResource, error) {
	if s.export == nil {
		return nil, nil
	}
	resourceIndex := slices.IndexFunc(s.export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool { return exportedResource(&entry) == gr })
	claim := slices.IndexFunc(s.export.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) bool { return claimMatches(&claim, gr) })
	return s.resolveResource(ctx, gr, resourceIndex, claim)
}

// resolveResource returns the offer of a resource, given the indexes of its entries in spec.resources and spec.permissionClaims of
// the export, which are -1 if there is none.
func (s *apiSet) resolveResource(ctx context.Context, gr schema.GroupResource, resourceIndex, claim int) (*apiResource, error) {
	found, err := s.resolveUnrestricted(ctx, gr, resourceIndex, claim)
	if err != nil || found == nil {
		return nil, err
	}
	if s.view == nil {
		found.subresources = s.findSubresources(found)
		return found, nil
	}
	entry, offered, err := s.view.Offer(ctx, s.export, gr, found.isOwn(), found.claim != nil)
	if err != nil || !offered {
		return nil, err
	}
	found.entry = entry
	return found, nil
}

func (s *apiSet) resolveUnrestricted(ctx context.Context, gr schema.GroupResource, resourceIndex, claim int) (*apiResource, error) {
	switch {
	case resourceIndex >= 0:
		resourceSchema, err := s.getSchema(ctx, s.name.Cluster, s.export.Spec.Resources[resourceIndex].Schema)
		if resourceSchema == nil || err != nil {
			return nil, err
		}
		own := &apiResource{GroupResource: gr, identity: s.export.Status.IdentityHash, schema: resourceSchema, verbs: allVerbs, status: statusVerbs}
		if s.export.Spec.Resources[resourceIndex].Storage.Virtual != nil {
			own.virtual, own.owner, own.verbs, own.status = true, s.name, readVerbs, nil
		}
		return own, nil
	case claim >= 0:
		return s.resolveClaimed(ctx, gr, &s.export.Spec.PermissionClaims[claim])
	case gr == apiBindings:
		return &apiResource{GroupResource: gr, verbs: readVerbs}, nil
	}
	return nil, nil
}

// resolveClaimed returns the offer of a claimed resource, or nil if no export or built-in API defines it.
func (s *apiSet) resolveClaimed(ctx context.Context, gr schema.GroupResource, claim *apisv1alpha2.PermissionClaim) (*apiResource, error) {
	found := &apiResource{GroupResource: gr, identity: claim.IdentityHash, claim: claim, verbs: allVerbs, status: statusVerbs}
	switch {
	case claim.IdentityHash != "":
		return s.describeClaimed(ctx, found, claim.IdentityHash)
	case gr.Group != "" && apiindex.NeedsIdentity(gr): // no export has resources of the core group
		return s.resolveAgnostic(ctx, found)
	case isClaimable(gr):
		return found, nil
	}
	return nil, nil
}

// describeClaimed completes the offer of a claimed resource with what exports of an identity define, or returns nil if none does.
func (s *apiSet) describeClaimed(ctx context.Context, found *apiResource, identity string) (*apiResource, error) {
	gr := found.GroupResource
	exports, err := s.exports.ListByIdentity(ctx, identity)
	if err != nil {
		return nil, fmt.Errorf("finding the exports of %s: %w", gr, err)
	}
	for _, export := range exports { // in a fixed order
		entry := findExportedResource(export, gr)
		if entry == nil {
			continue
		}
		if found.schema, err = s.getSchema(ctx, logicalcluster.Of(export), entry.Schema); err != nil {
			return nil, err
		}
		if found.schema == nil {
			continue
		}
		if entry.Storage.Virtual != nil {
			found.virtual, found.owner, found.verbs, found.status = true, apiindex.ExportKeyOf(export), readVerbs, nil
		}
		found.definer = export
		return found, nil
	}
	return nil, nil
}

// findSubresources returns the claims of subresources of a resource that is claimed.
func (s *apiSet) findSubresources(found *apiResource) map[string]*apisv1alpha2.PermissionClaim {
	if found.claim == nil || (found.identity != "" || found.agnostic) && !s.customSubresources {
		return nil
	}
	var claims map[string]*apisv1alpha2.PermissionClaim
	for i := range s.export.Spec.PermissionClaims {
		claim := &s.export.Spec.PermissionClaims[i]
		resource, subresource := apiindex.ClaimedResource(*claim)
		if subresource == "" || subresource == statusSubresource || claim.IdentityHash != found.claim.IdentityHash || resource != found.GroupResource {
			continue
		}
		if found.definer != nil && subresources.Find(found.definer, resource, subresource) == nil {
			continue
		}
		if claims == nil {
			claims = map[string]*apisv1alpha2.PermissionClaim{}
		}
		claims[subresource] = claim
	}
	return claims
}

// list returns all offers.
func (s *apiSet) list(ctx context.Context) ([]*apiResource, error) {
	if s.export == nil {
		return nil, nil
	}
	// Indexes by resource avoid a quadratic search: there may be thousands.
	resourceIndexes, claimed := map[schema.GroupResource]int{}, map[schema.GroupResource]int{}
	names := []schema.GroupResource{}
	add := func(indexes map[schema.GroupResource]int, gr schema.GroupResource, at int) {
		if _, known := indexes[gr]; !known {
			indexes[gr] = at
			names = append(names, gr)
		}
	}
	for i := range s.export.Spec.Resources {
		add(resourceIndexes, exportedResource(&s.export.Spec.Resources[i]), i)
	}
	for i := range s.export.Spec.PermissionClaims {
		if _, subresource := apiindex.ClaimedResource(s.export.Spec.PermissionClaims[i]); subresource != "" {
			continue // offered with the claim of the resource
		}
		for _, gr := range claimedResources(&s.export.Spec.PermissionClaims[i]) {
			add(claimed, gr, i)
		}
	}
	names = append(names, apiBindings)
	position := func(positions map[schema.GroupResource]int, gr schema.GroupResource) int {
		if at, ok := positions[gr]; ok {
			return at
		}
		return -1
	}
	var resources []*apiResource
	seen := map[schema.GroupResource]bool{}
	for _, gr := range names {
		if seen[gr] {
			continue
		}
		seen[gr] = true
		found, err := s.resolveResource(ctx, gr, position(resourceIndexes, gr), position(claimed, gr))
		if err != nil {
			return nil, err
		}
		if found != nil {
			resources = append(resources, found)
		}
	}
	return resources, nil
}

// getSchema returns a schema, or nil if it does not exist.
func (s *apiSet) getSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	found, err := s.exports.GetSchema(ctx, cluster, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading APIResourceSchema %q of %q: %w", name, cluster, err)
	}
	return found, nil
}

func exportedResource(entry *apisv1alpha2.ResourceSchema) schema.GroupResource {
	return schema.GroupResource{Group: entry.Group, Resource: entry.Name}
}

func findExportedResource(export *apisv1alpha2.APIExport, gr schema.GroupResource) *apisv1alpha2.ResourceSchema {
	at := slices.IndexFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool {
		return exportedResource(&entry) == gr
	})
	if at < 0 {
		return nil
	}
	return &export.Spec.Resources[at]
}

// claimMatches reports whether a claim is for a resource. The two groups of events count as one resource.
func claimMatches(claim *apisv1alpha2.PermissionClaim, gr schema.GroupResource) bool {
	return apiindex.NormalizeResource(schema.GroupResource{Group: claim.Group, Resource: claim.Resource}) == apiindex.NormalizeResource(gr)
}

// claimedResources returns the resources that a claim is for.
func claimedResources(claim *apisv1alpha2.PermissionClaim) []schema.GroupResource {
	named := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
	if apiindex.NormalizeResource(named) == coreEvents {
		return []schema.GroupResource{coreEvents, newEvents}
	}
	return []schema.GroupResource{named}
}

// visibilityLabel returns the label key and values of the objects that the export may see; no key if it may see all.
func (s *apiSet) visibilityLabel(resource *apiResource) (key string, values []string) {
	switch {
	case resource.isOwn(), resource.virtual: // claims of virtual resources are for all objects: none can be labelled
		return "", nil
	case resource.claim != nil:
		key, value := apiindex.ClaimLabel(s.name, *resource.claim)
		if resource.GroupResource == apiBindings {
			return key, []string{value, apiindex.ReflexiveClaimValue}
		}
		return key, []string{value}
	default:
		key, value := apiindex.ExportLabel(s.name)
		return key, []string{value}
	}
}

// claimedVerbs returns the verbs of a claim of a custom subresource, in the order of the API.
func claimedVerbs(claim *apisv1alpha2.PermissionClaim) metav1.Verbs {
	if slices.Contains(claim.Verbs, apisv1alpha2.VerbAll) {
		return subresources.Verbs
	}
	return intersection(subresources.Verbs, claim.Verbs)
}
