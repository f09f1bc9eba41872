package apiindex

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// EffectiveClaim is a claim that an export makes and a binding accepts.
type EffectiveClaim struct {
	// ScopedPermissionClaim is the claim as the consumer accepted it.
	apisv1alpha2.ScopedPermissionClaim
	// Allowed are the verbs that both sides name. May be empty.
	Allowed sets.Set[string]
}

// Allows reports whether the claim allows a verb. The verb "*" counts if both sides name it.
func (c EffectiveClaim) Allows(verb string) bool {
	return c.Allowed.HasAny(verb, apisv1alpha2.VerbAll)
}

// EffectiveClaims returns the claims that a binding accepts and its export makes, in the order of the binding. Claims
// match by group, resource and identity; the two groups of events match each other.
func EffectiveClaims(binding *apisv1alpha2.APIBinding, export *apisv1alpha2.APIExport) []EffectiveClaim {
	exported := make(map[claimKey][]string, len(export.Spec.PermissionClaims))
	for _, claim := range export.Spec.PermissionClaims {
		exported[claimKeyOf(claim)] = claim.Verbs
	}
	var effective []EffectiveClaim
	for _, accepted := range binding.Spec.PermissionClaims {
		if accepted.State != apisv1alpha2.ClaimAccepted {
			continue
		}
		if verbs, ok := exported[claimKeyOf(accepted.PermissionClaim)]; ok {
			effective = append(effective, EffectiveClaim{
				ScopedPermissionClaim: accepted.Scoped(),
				Allowed:               sets.New(accepted.Verbs...).Intersection(sets.New(verbs...)),
			})
		}
	}
	return effective
}

// ClaimedResource returns the resource of a claim, and the subresource if it claims one.
func ClaimedResource(claim apisv1alpha2.PermissionClaim) (resource schema.GroupResource, subresource string) {
	name, subresource, _ := strings.Cut(claim.Resource, "/")
	return schema.GroupResource{Group: claim.Group, Resource: name}, subresource
}

// claimKey identifies a claim within an export or a binding.
type claimKey struct{ group, resource, identity string }

func claimKeyOf(claim apisv1alpha2.PermissionClaim) claimKey {
	claim = NormalizeClaim(claim)
	return claimKey{claim.Group, claim.Resource, claim.IdentityHash}
}
