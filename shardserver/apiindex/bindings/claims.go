package bindings

import (
	"encoding/json"
	"hash/fnv"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// claimsHash is a hash of the accepted claims of a binding on resources of other exports; zero if there are none.
type claimsHash uint64

func hashClaims(binding *apisv1alpha2.APIBinding) claimsHash {
	var accepted []apisv1alpha2.ScopedPermissionClaim
	for _, claim := range binding.Spec.PermissionClaims {
		if claim.IdentityHash != "" && claim.State == apisv1alpha2.ClaimAccepted {
			accepted = append(accepted, claim.Scoped())
		}
	}
	if len(accepted) == 0 {
		return 0
	}
	hash := fnv.New64a()
	if err := json.NewEncoder(hash).Encode(accepted); err != nil {
		panic(err) // types of an API can always be encoded
	}
	return claimsHash(hash.Sum64())
}
