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

// Judge brings what the status of a binding says about claims in line with what the binding accepts and the status says
// that the export has. It returns the resources whose objects have to be labelled anew before the claims count as applied;
// if there are none, they do. While the export is not known there is nothing to judge.
func Judge(binding *apisv1alpha2.APIBinding) (pending []schema.GroupResource) {
	if _, known := exportOf(binding); !known {
		return nil
	}
	judgeValidity(binding)
	wanted := effective(binding)
	if pending = outdated(binding.Status.AppliedPermissionClaims, wanted); len(pending) > 0 {
		return pending
	}
	applied(binding, wanted)
	return nil
}

// applied says that the claims are applied. A status that says so already is left as it is.
func applied(binding *apisv1alpha2.APIBinding, claims []apisv1alpha2.ScopedPermissionClaim) {
	if !equality.Semantic.DeepEqual(binding.Status.AppliedPermissionClaims, claims) {
		binding.Status.AppliedPermissionClaims = claims
	}
	conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.PermissionClaimsApplied)
}

// failed says that some objects could not be labelled. What was applied before stays in the status, so that the
// resources are looked at again.
func failed(binding *apisv1alpha2.APIBinding, err error) {
	conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsApplied, apisv1alpha2.InternalErrorReason,
		conditionsv1alpha1.SeverityError, "Not all objects could be labelled: %v", err)
}

// outdated returns the resources for which other objects shall be labelled than are, ordered.
func outdated(labelled, wanted []apisv1alpha2.ScopedPermissionClaim) []schema.GroupResource {
	found := sets.New[schema.GroupResource]()
	for _, pair := range [][2][]apisv1alpha2.ScopedPermissionClaim{{labelled, wanted}, {wanted, labelled}} {
		others := byResource(pair[1], unscoped)
		for _, claim := range pair[0] {
			if other, has := others[griOf(claim.PermissionClaim)]; !has || !equality.Semantic.DeepEqual(claim.Selector, other.Selector) {
				found.Insert(resourceOf(claim.PermissionClaim))
			}
		}
	}
	return slices.SortedFunc(slices.Values(found.UnsortedList()), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// judgeValidity says whether what is accepted is what the export claims.
func judgeValidity(binding *apisv1alpha2.APIBinding) {
	var unknown, different []string
	claimed := byResource(binding.Status.ExportPermissionClaims, plain)
	for _, accepted := range binding.Spec.PermissionClaims {
		if accepted.State != apisv1alpha2.ClaimAccepted {
			continue
		}
		exported, has := claimed[griOf(accepted.PermissionClaim)]
		if !has {
			unknown = append(unknown, named(accepted.PermissionClaim))
			continue
		}
		different = append(different, differences(accepted.Scoped(), exported)...)
	}
	switch {
	case len(unknown) > 0:
		slices.Sort(unknown)
		conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsValid, apisv1alpha2.InvalidPermissionClaimsReason,
			conditionsv1alpha1.SeverityError, "The APIExport does not claim %s", strings.Join(unknown, ", "))
	case len(different) > 0:
		slices.Sort(different)
		conditionsv1alpha1.MarkFalse(binding, apisv1alpha2.PermissionClaimsValid, apisv1alpha2.PermissionClaimsMismatchReason,
			conditionsv1alpha1.SeverityWarning, "Accepted otherwise than the APIExport claims: %s", strings.Join(different, ", "))
	default:
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.PermissionClaimsValid)
	}
}

// differences tells in what an accepted claim is not the one of the export.
func differences(accepted apisv1alpha2.ScopedPermissionClaim, exported apisv1alpha2.PermissionClaim) []string {
	var found []string
	ours, theirs := sets.New(accepted.Verbs...), sets.New(exported.Verbs...)
	if !ours.Equal(theirs) && !ours.Has(apisv1alpha2.VerbAll) && !theirs.Has(apisv1alpha2.VerbAll) {
		found = append(found, "verbs of "+named(exported))
	}
	if exported.DefaultSelector != nil && !equality.Semantic.DeepEqual(accepted.Selector, *exported.DefaultSelector) {
		found = append(found, "selector of "+named(exported))
	}
	return found
}

func named(claim apisv1alpha2.PermissionClaim) string {
	name := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}.String()
	if claim.IdentityHash != "" {
		name = fmt.Sprintf("%s:%s", name, claim.IdentityHash)
	}
	return name
}
