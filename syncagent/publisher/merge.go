package publisher

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// coreGroup replaces the empty group in the names of schemas.
const coreGroup = "core"

// ResourceOf returns the "<plural>.<group>" of a schema's name, "<prefix>.<plural>.<group>".
func ResourceOf(schemaName string) string {
	_, resource, _ := strings.Cut(schemaName, ".")
	return resource
}

// SelectSchemas returns the publications whose schemas are exported, by resource: the oldest publication of each resource. It returns the
// other publications of these resources as duplicates, and ignores those that are being deleted.
func SelectSchemas(publications []*publication.Publication) (exported map[string]*publication.Publication, duplicates []*publication.Publication) {
	sorted := slices.SortedStableFunc(slices.Values(publications), func(a, b *publication.Publication) int {
		return a.Object.GetCreationTimestamp().Compare(b.Object.GetCreationTimestamp().Time)
	})
	exported = map[string]*publication.Publication{}
	for _, p := range sorted {
		if p.SchemaName == "" || p.Object.GetDeletionTimestamp() != nil {
			continue
		}
		if _, taken := exported[ResourceOf(p.SchemaName)]; taken {
			duplicates = append(duplicates, p)
			continue
		}
		exported[ResourceOf(p.SchemaName)] = p
	}
	return exported, duplicates
}

// mergeSchemas returns the names of schemas that an export should have, sorted by resource: those of publications, and the existing ones
// of other resources, which other clients have added or which belong to deleted publications.
func mergeSchemas(existing []string, exported map[string]*publication.Publication) []string {
	var names []string
	for _, name := range existing {
		if _, managed := exported[ResourceOf(name)]; !managed {
			names = append(names, name)
		}
	}
	for _, p := range exported {
		names = append(names, p.SchemaName)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(ResourceOf(a), ResourceOf(b)), cmp.Compare(a, b)) })
	return slices.Compact(names)
}

// wantedClaims returns the claims that the sync of publications needs, for an export with these schemas.
func wantedClaims(publications []*publication.Publication, schemas []string) []apisv1alpha1.PermissionClaim {
	own := map[string]bool{}
	for _, name := range schemas {
		own[ResourceOf(name)] = true
	}
	claims := []apisv1alpha1.PermissionClaim{newClaim("", "events", "")}
	for _, p := range publications {
		if p.SchemaName == "" || len(p.Invalid) > 0 {
			continue
		}
		if len(p.Spec.Related) > 0 || p.Spec.Filter != nil && p.Spec.Filter.Namespace != nil {
			claims = append(claims, newClaim("", "namespaces", ""))
		}
		if p.Spec.EnableWorkspacePaths {
			claims = append(claims, newClaim("core.kcp.io", "logicalclusters", ""))
		}
		for _, entry := range p.Spec.Related {
			resource := workspaceResource(entry)
			if !own[resource.Resource+"."+cmp.Or(resource.Group, coreGroup)] {
				claims = append(claims, newClaim(resource.Group, resource.Resource, entry.IdentityHash))
			}
		}
	}
	return claims
}

// workspaceResource returns the resource of a related entry in workspaces.
func workspaceResource(entry syncagentv1alpha1.RelatedResourceSpec) schema.GroupVersionResource {
	if entry.Origin == syncagentv1alpha1.RelatedResourceOriginKcp {
		return related.OriginResource(entry)
	}
	return related.CopyResource(entry)
}

func newClaim(group, resource, identityHash string) apisv1alpha1.PermissionClaim {
	return apisv1alpha1.PermissionClaim{
		GroupResource: apisv1alpha1.GroupResource{Group: group, Resource: resource}, All: true, IdentityHash: identityHash,
	}
}

// mergeClaims returns the existing claims together with the missing ones, sorted by group and resource, and the added claims. A claim of
// the same resource counts as existing, independent of its selector, because an export has one claim for a resource.
func mergeClaims(existing, wanted []apisv1alpha1.PermissionClaim) (merged, added []apisv1alpha1.PermissionClaim) {
	merged = slices.Clone(existing)
	for _, claim := range wanted {
		if slices.ContainsFunc(merged, func(present apisv1alpha1.PermissionClaim) bool { return present.GroupResource == claim.GroupResource }) {
			continue
		}
		merged, added = append(merged, claim), append(added, claim)
	}
	slices.SortStableFunc(merged, func(a, b apisv1alpha1.PermissionClaim) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return merged, added
}

// otherIdentities returns the resources that an export claims with another identity than a publication needs. The agent does not replace
// such a claim, because consumers have accepted it.
func otherIdentities(existing, wanted []apisv1alpha1.PermissionClaim) []string {
	var found []string
	for _, claim := range wanted {
		if slices.ContainsFunc(existing, func(present apisv1alpha1.PermissionClaim) bool {
			return present.GroupResource == claim.GroupResource && present.IdentityHash != claim.IdentityHash
		}) {
			found = append(found, strings.TrimSuffix(claim.Resource+"."+claim.Group, "."))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// difference returns the elements of the first that are not in the second.
func difference(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}
