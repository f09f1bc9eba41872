package claims

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// UpdateStatus sets the claim conditions and applied claims in the status of a binding. It returns the resources whose
// objects have to be relabeled before the claims count as applied. It does nothing until the status names the export.
func UpdateStatus(binding *apisv1alpha2.APIBinding) (pending []schema.GroupResource) {
	if _, known := parseExportKey(binding); !known {
		return nil
	}
	setClaimsValid(binding)
	desired := effectiveClaims(binding)
	if pending = outdatedResources(binding.Status.AppliedPermissionClaims, desired); len(pending) > 0 {
		return pending
	}
	setApplied(binding, desired)
	return nil
}

// setApplied sets status.appliedPermissionClaims, if changed, and PermissionClaimsApplied. The selector of an applied claim is
// immutable. A consumer may withdraw a claim and accept it with another selector before this is noticed; then the claim is removed
// first, and the event of that write leads here again.
func setApplied(binding *apisv1alpha2.APIBinding, claims []apisv1alpha2.ScopedPermissionClaim) {
	applied := indexByKey(binding.Status.AppliedPermissionClaims, scopedPermissionClaim)
	kept := slices.DeleteFunc(slices.Clone(claims), func(claim apisv1alpha2.ScopedPermissionClaim) bool {
		before, known := applied[newClaimKey(claim.PermissionClaim)]
		return known && !equality.Semantic.DeepEqual(before.Selector, claim.Selector)
	})
	if len(kept) < len(claims) {
		binding.Status.AppliedPermissionClaims = kept
		return
	}
	if !equality.Semantic.DeepEqual(binding.Status.AppliedPermissionClaims, claims) {
		binding.Status.AppliedPermissionClaims = claims
	}
	conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.PermissionClaimsApplied)
}

// setFailed sets PermissionClaimsApplied to False. The applied claims stay unchanged, so that the resources are relabeled
// again.
func setFailed(binding *apisv1alpha2.APIBinding, err error) {
	conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsApplied, apisv1alpha2.InternalErrorReason,
		conditionsv1alpha1.SeverityError, "Not all objects could be labelled: %v", err)
}

// outdatedResources returns the resources whose labelled and wanted claims differ, in order.
func outdatedResources(applied, desired []apisv1alpha2.ScopedPermissionClaim) []schema.GroupResource {
	found := sets.New[schema.GroupResource]()
	for _, pair := range [][2][]apisv1alpha2.ScopedPermissionClaim{{applied, desired}, {desired, applied}} {
		others := indexByKey(pair[1], scopedPermissionClaim)
		for _, claim := range pair[0] {
			if isSubresource(claim.PermissionClaim) {
				continue // no objects are labelled
			}
			if other, has := others[newClaimKey(claim.PermissionClaim)]; !has || !equality.Semantic.DeepEqual(claim.Selector, other.Selector) {
				found.Insert(claimGroupResource(claim.PermissionClaim))
			}
		}
	}
	return slices.SortedFunc(slices.Values(found.UnsortedList()), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// setClaimsValid sets PermissionClaimsValid by comparing the accepted claims with those of the export.
func setClaimsValid(binding *apisv1alpha2.APIBinding) {
	var unknown, mismatched []string
	claimed := indexByKey(binding.Status.ExportPermissionClaims, permissionClaim)
	for _, accepted := range binding.Spec.PermissionClaims {
		if accepted.State != apisv1alpha2.ClaimAccepted {
			continue
		}
		exported, has := claimed[newClaimKey(accepted.PermissionClaim)]
		if !has {
			unknown = append(unknown, describeClaim(accepted.PermissionClaim))
			continue
		}
		mismatched = append(mismatched, describeMismatches(accepted.Scoped(), exported)...)
	}
	switch {
	case len(unknown) > 0:
		slices.Sort(unknown)
		conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsValid, apisv1alpha2.InvalidPermissionClaimsReason,
			conditionsv1alpha1.SeverityError, "The APIExport does not claim %s", strings.Join(unknown, ", "))
	case len(mismatched) > 0:
		slices.Sort(mismatched)
		conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsValid, apisv1alpha2.PermissionClaimsMismatchReason,
			conditionsv1alpha1.SeverityWarning, "Accepted claims differ from those of the APIExport: %s", strings.Join(mismatched, ", "))
	default:
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.PermissionClaimsValid)
	}
}

// describeMismatches returns the differences between an accepted claim and that of the export.
func describeMismatches(accepted apisv1alpha2.ScopedPermissionClaim, exported apisv1alpha2.PermissionClaim) []string {
	var found []string
	acceptedVerbs, exportedVerbs := sets.New(accepted.Verbs...), sets.New(exported.Verbs...)
	if !acceptedVerbs.Equal(exportedVerbs) && !acceptedVerbs.Has(apisv1alpha2.VerbAll) && !exportedVerbs.Has(apisv1alpha2.VerbAll) {
		found = append(found, "verbs of "+describeClaim(exported))
	}
	if exported.DefaultSelector != nil && !equality.Semantic.DeepEqual(accepted.Selector, *exported.DefaultSelector) {
		found = append(found, "selector of "+describeClaim(exported))
	}
	return found
}

func describeClaim(claim apisv1alpha2.PermissionClaim) string {
	name := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}.String()
	if claim.IdentityHash != "" {
		name = fmt.Sprintf("%s:%s", name, claim.IdentityHash)
	}
	return name
}
