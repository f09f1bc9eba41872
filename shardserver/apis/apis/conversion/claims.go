package conversion

import (
	"fmt"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// claimKey identifies claims of both versions within an export or a binding.
type claimKey struct {
	group, resource, identity string
}

func keyV1alpha1(claim apisv1alpha1.PermissionClaim) claimKey {
	return claimKey{claim.Group, claim.Resource, claim.IdentityHash}
}

func keyScoped(claim apisv1alpha2.ScopedPermissionClaim) claimKey {
	return keyV1alpha2(claim.PermissionClaim)
}

func keyV1alpha2(claim apisv1alpha2.PermissionClaim) claimKey {
	return claimKey{claim.Group, claim.Resource, claim.IdentityHash}
}

// acceptAll accepts every list.
func acceptAll[T any]([]T) error { return nil }

// newClaimsValidator returns a check that every claim of a list is unique and one of the given claims.
func newClaimsValidator[T any](id func(T) claimKey, claims []apisv1alpha1.PermissionClaim) func([]T) error {
	return func(list []T) error {
		claimsByKey := indexByKey(claims, keyV1alpha1)
		seen := map[claimKey]bool{}
		for _, item := range list {
			claim := id(item)
			if seen[claim] {
				return fmt.Errorf("it contains the claim of %s twice", describeClaim(claim))
			}
			seen[claim] = true
			if _, ok := claimsByKey[claim]; !ok {
				return fmt.Errorf("it contains a claim of %s, which the object does not", describeClaim(claim))
			}
		}
		return nil
	}
}

func describeClaim(claim claimKey) string {
	text := claim.resource
	if claim.group != "" {
		text += "." + claim.group
	}
	if claim.identity != "" {
		text += ":" + claim.identity
	}
	return text
}

// hasDefaultVerbs reports whether the verbs are those of every v1alpha1 claim.
func hasDefaultVerbs(claim apisv1alpha2.PermissionClaim) bool {
	return len(claim.Verbs) == 1 && claim.Verbs[0] == apisv1alpha2.VerbAll && claim.DefaultSelector == nil
}

// hasDefaultScope reports whether verbs and selector are those of every v1alpha1 claim.
func hasDefaultScope(claim apisv1alpha2.ScopedPermissionClaim) bool {
	return hasDefaultVerbs(claim.PermissionClaim) &&
		claim.Selector.MatchAll && len(claim.Selector.MatchLabels) == 0 && len(claim.Selector.MatchExpressions) == 0
}

// indexByKey returns the items by key, the first of duplicates. It avoids quadratic searches in lists that clients may
// make long.
func indexByKey[T any](items []T, id func(T) claimKey) map[claimKey]T {
	found := make(map[claimKey]T, len(items))
	for _, item := range items {
		if _, ok := found[id(item)]; !ok {
			found[id(item)] = item
		}
	}
	return found
}

// claimToV1alpha1 converts a claim with the fields that an earlier conversion preserved; by default it claims all
// objects.
func claimToV1alpha1(claim apisv1alpha2.PermissionClaim, preserved map[claimKey]apisv1alpha1.PermissionClaim) apisv1alpha1.PermissionClaim {
	converted := apisv1alpha1.PermissionClaim{
		GroupResource: apisv1alpha1.GroupResource{Group: claim.Group, Resource: claim.Resource},
		IdentityHash:  claim.IdentityHash,
		All:           true,
	}
	if original, ok := preserved[keyV1alpha2(claim)]; ok {
		converted.All, converted.ResourceSelector = original.All, original.ResourceSelector
	}
	return converted
}

// claimToV1alpha2 converts a claim with the fields that an earlier conversion preserved; by default it claims all
// verbs.
func claimToV1alpha2(claim apisv1alpha1.PermissionClaim, preserved map[claimKey]apisv1alpha2.PermissionClaim) apisv1alpha2.PermissionClaim {
	converted := apisv1alpha2.PermissionClaim{
		GroupResource: apisv1alpha2.GroupResource{Group: claim.Group, Resource: claim.Resource},
		IdentityHash:  claim.IdentityHash,
		Verbs:         []string{apisv1alpha2.VerbAll},
	}
	if original, ok := preserved[keyV1alpha1(claim)]; ok {
		converted.Verbs, converted.DefaultSelector = original.Verbs, original.DefaultSelector
	}
	return converted
}

// scopedToV1alpha2 is claimToV1alpha2 for claims with a selector, which by default matches all objects.
func scopedToV1alpha2(claim apisv1alpha1.PermissionClaim, preserved map[claimKey]apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.ScopedPermissionClaim {
	converted := apisv1alpha2.ScopedPermissionClaim{
		PermissionClaim: claimToV1alpha2(claim, nil),
		Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true},
	}
	if original, ok := preserved[keyV1alpha1(claim)]; ok {
		converted.Verbs, converted.DefaultSelector, converted.Selector = original.Verbs, original.DefaultSelector, original.Selector
	}
	return converted
}

// mapItems applies f to each item. It returns nil for nil.
func mapItems[In, Out any](in []In, f func(In) Out) []Out {
	if in == nil {
		return nil
	}
	out := make([]Out, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// filterItems returns the items that keep accepts.
func filterItems[T any](in []T, keep func(T) bool) []T {
	var out []T
	for _, item := range in {
		if keep(item) {
			out = append(out, item)
		}
	}
	return out
}
