package apiindex

import (
	"testing"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

func claim(resource, identity string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: resource}, IdentityHash: identity, Verbs: verbs}
}

func acceptableClaim(state apisv1alpha2.AcceptablePermissionClaimState, claim apisv1alpha2.PermissionClaim) apisv1alpha2.AcceptablePermissionClaim {
	return apisv1alpha2.AcceptablePermissionClaim{
		PermissionClaim: claim,
		Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true},
		State:           state,
	}
}

func TestEffectiveClaims(t *testing.T) {
	const accepted, rejected = apisv1alpha2.ClaimAccepted, apisv1alpha2.ClaimRejected
	for name, tc := range map[string]struct {
		exported        apisv1alpha2.PermissionClaim
		acceptable      apisv1alpha2.AcceptablePermissionClaim
		ineffective     bool
		allowed, denied string
	}{
		"a verb of both sides is allowed":                                  {exported: claim("a", "", "get", "list"), acceptable: acceptableClaim(accepted, claim("a", "", "get", "watch")), allowed: "get", denied: "list"},
		"a verb of the consumer only is not allowed":                       {exported: claim("a", "", "get", "list"), acceptable: acceptableClaim(accepted, claim("a", "", "get", "watch")), allowed: "get", denied: "watch"},
		"the verb * on both sides":                                         {exported: claim("a", "", "*"), acceptable: acceptableClaim(accepted, claim("a", "", "*")), allowed: "patch"},
		"the verb * of the export only":                                    {exported: claim("a", "", "*"), acceptable: acceptableClaim(accepted, claim("a", "", "get")), denied: "get"},
		"the verb * of the consumer only":                                  {exported: claim("a", "", "get"), acceptable: acceptableClaim(accepted, claim("a", "", "*")), denied: "get"},
		"a rejected claim is not effective":                                {exported: claim("a", "", "*"), acceptable: acceptableClaim(rejected, claim("a", "", "*")), ineffective: true},
		"an accepted claim that the export does not make is not effective": {exported: claim("a", "", "*"), acceptable: acceptableClaim(accepted, claim("b", "", "*")), ineffective: true},
		"another identity is another resource":                             {exported: claim("a", "x", "*"), acceptable: acceptableClaim(accepted, claim("a", "y", "*")), ineffective: true},
		"the same identity is the same resource":                           {exported: claim("a", "x", "get"), acceptable: acceptableClaim(accepted, claim("a", "x", "get")), allowed: "get"},
	} {
		t.Run(name, func(t *testing.T) {
			binding := &apisv1alpha2.APIBinding{Spec: apisv1alpha2.APIBindingSpec{PermissionClaims: []apisv1alpha2.AcceptablePermissionClaim{tc.acceptable}}}
			export := &apisv1alpha2.APIExport{Spec: apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{tc.exported}}}
			got := EffectiveClaims(binding, export)
			if len(got) == 0 != tc.ineffective {
				t.Fatalf("effective claims are %+v", got)
			}
			for _, claim := range got {
				if (tc.allowed != "" && !claim.Allows(tc.allowed)) || (tc.denied != "" && claim.Allows(tc.denied)) || !claim.Selector.MatchAll {
					t.Errorf("got %+v", claim)
				}
			}
		})
	}
}
