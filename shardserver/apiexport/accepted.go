package apiexport

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// EffectiveClaim is a claim that both sides agree on.
type EffectiveClaim struct {
	// ScopedPermissionClaim is the claim as the consumer accepted it.
	apisv1alpha2.ScopedPermissionClaim
	// Allowed are the verbs that both sides name. They may be none.
	Allowed sets.Set[string]
}

// Allows tells whether the provider may do something by the claim. The verb for all counts if both sides name it.
func (c EffectiveClaim) Allows(verb string) bool {
	return c.Allowed.HasAny(verb, apisv1alpha2.VerbAll)
}

// EffectiveClaims returns the claims that a binding accepts and its export has, in the order of the binding. Claims
// are the same if group, resource and identity are, and those of events of either group are.
func EffectiveClaims(binding *apisv1alpha2.APIBinding, export *apisv1alpha2.APIExport) []EffectiveClaim {
	var effective []EffectiveClaim
	for _, accepted := range binding.Spec.PermissionClaims {
		if accepted.State != apisv1alpha2.ClaimAccepted {
			continue
		}
		normal := Normal(accepted.PermissionClaim)
		at := slices.IndexFunc(export.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) bool { return normal.EqualGRI(Normal(claim)) })
		if at < 0 {
			continue
		}
		effective = append(effective, EffectiveClaim{
			ScopedPermissionClaim: accepted.Scoped(),
			Allowed:               sets.New(accepted.Verbs...).Intersection(sets.New(export.Spec.PermissionClaims[at].Verbs...)),
		})
	}
	return effective
}
