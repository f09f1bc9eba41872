package conversion

import (
	"fmt"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// identified is what claims of both versions are told apart by, within an export or a binding.
type identified struct {
	group, resource, identity string
}

func idV1alpha1(claim apisv1alpha1.PermissionClaim) identified {
	return identified{claim.Group, claim.Resource, claim.IdentityHash}
}

func idScoped(claim apisv1alpha2.ScopedPermissionClaim) identified {
	return idV1alpha2(claim.PermissionClaim)
}

func idV1alpha2(claim apisv1alpha2.PermissionClaim) identified {
	return identified{claim.Group, claim.Resource, claim.IdentityHash}
}

// anything accepts every list.
func anything[T any]([]T) error { return nil }

// answered returns a check that every claim of a list occurs in it once, and in the given claims too.
func answered[T any](id func(T) identified, claims []apisv1alpha1.PermissionClaim) func([]T) error {
	return func(list []T) error {
		held := byID(claims, idV1alpha1)
		seen := map[identified]bool{}
		for _, item := range list {
			claim := id(item)
			if seen[claim] {
				return fmt.Errorf("it holds the claim of %s twice", describe(claim))
			}
			seen[claim] = true
			if _, ok := held[claim]; !ok {
				return fmt.Errorf("it holds a claim of %s, which the object does not", describe(claim))
			}
		}
		return nil
	}
}

func describe(claim identified) string {
	text := claim.resource
	if claim.group != "" {
		text += "." + claim.group
	}
	if claim.identity != "" {
		text += ":" + claim.identity
	}
	return text
}

// plainVerbs tells whether v1alpha1 means these very verbs.
func plainVerbs(claim apisv1alpha2.PermissionClaim) bool {
	return len(claim.Verbs) == 1 && claim.Verbs[0] == apisv1alpha2.VerbAll && claim.DefaultSelector == nil
}

// plainScope tells whether v1alpha1 means this very claim.
func plainScope(claim apisv1alpha2.ScopedPermissionClaim) bool {
	return plainVerbs(claim.PermissionClaim) &&
		claim.Selector.MatchAll && len(claim.Selector.MatchLabels) == 0 && len(claim.Selector.MatchExpressions) == 0
}

// byID returns the items by what they are about, the first of several. Lists may be as long as an object can be, so that
// nothing here looks through one for every item of another.
func byID[T any](items []T, id func(T) identified) map[identified]T {
	found := make(map[identified]T, len(items))
	for _, item := range items {
		if _, ok := found[id(item)]; !ok {
			found[id(item)] = item
		}
	}
	return found
}

// claimToV1alpha1 returns the claim with what an earlier conversion kept of it; all objects are claimed if that is
// nothing.
func claimToV1alpha1(claim apisv1alpha2.PermissionClaim, kept map[identified]apisv1alpha1.PermissionClaim) apisv1alpha1.PermissionClaim {
	converted := apisv1alpha1.PermissionClaim{
		GroupResource: apisv1alpha1.GroupResource{Group: claim.Group, Resource: claim.Resource},
		IdentityHash:  claim.IdentityHash,
		All:           true,
	}
	if before, ok := kept[idV1alpha2(claim)]; ok {
		converted.All, converted.ResourceSelector = before.All, before.ResourceSelector
	}
	return converted
}

// claimToV1alpha2 returns the claim with what an earlier conversion kept of it; everything is claimed if that is
// nothing.
func claimToV1alpha2(claim apisv1alpha1.PermissionClaim, kept map[identified]apisv1alpha2.PermissionClaim) apisv1alpha2.PermissionClaim {
	converted := apisv1alpha2.PermissionClaim{
		GroupResource: apisv1alpha2.GroupResource{Group: claim.Group, Resource: claim.Resource},
		IdentityHash:  claim.IdentityHash,
		Verbs:         []string{apisv1alpha2.VerbAll},
	}
	if before, ok := kept[idV1alpha1(claim)]; ok {
		converted.Verbs, converted.DefaultSelector = before.Verbs, before.DefaultSelector
	}
	return converted
}

// scopedToV1alpha2 is claimToV1alpha2 for claims with a selector, which chooses all objects unless it was kept.
func scopedToV1alpha2(claim apisv1alpha1.PermissionClaim, kept map[identified]apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.ScopedPermissionClaim {
	converted := apisv1alpha2.ScopedPermissionClaim{
		PermissionClaim: claimToV1alpha2(claim, nil),
		Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true},
	}
	if before, ok := kept[idV1alpha1(claim)]; ok {
		converted.Verbs, converted.DefaultSelector, converted.Selector = before.Verbs, before.DefaultSelector, before.Selector
	}
	return converted
}

// mapped returns what f makes of each item. Nothing stays nothing.
func mapped[In, Out any](in []In, f func(In) Out) []Out {
	if in == nil {
		return nil
	}
	out := make([]Out, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// filtered returns the items that keep accepts.
func filtered[T any](in []T, keep func(T) bool) []T {
	var out []T
	for _, item := range in {
		if keep(item) {
			out = append(out, item)
		}
	}
	return out
}
