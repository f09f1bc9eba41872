package claims

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// claim is an effective claim. It is immutable and shared by all logical clusters with equal claims.
type claim struct {
	// key and value are the label of claimed objects.
	key, value string
	// identity is the identity hash of the claimed resource; empty for built-in resources.
	identity string
	selector labels.Selector
}

// claimSet holds the effective claims of a binding by resource. Equal bindings share one, counted by refs.
type claimSet struct {
	hash   contentHash
	claims map[schema.GroupResource][]claim
	refs   int
}

// contentHash identifies equal claim sets.
type contentHash [sha256.Size]byte

// effectiveClaims returns the claims that a binding accepts and that status.exportPermissionClaims contains; none once
// the claims of the binding have ended.
func effectiveClaims(binding *apisv1alpha2.APIBinding) []apisv1alpha2.ScopedPermissionClaim {
	if areClaimsEnded(binding) || len(binding.Spec.PermissionClaims) == 0 {
		return nil
	}
	exported := indexByKey(binding.Status.ExportPermissionClaims, permissionClaim)
	var found []apisv1alpha2.ScopedPermissionClaim
	for _, accepted := range binding.Spec.PermissionClaims {
		if _, claimed := exported[newClaimKey(accepted.PermissionClaim)]; claimed && accepted.State == apisv1alpha2.ClaimAccepted {
			found = append(found, accepted.Scoped())
		}
	}
	return found
}

// parseExportKey returns the export that a binding is bound to, if its status names it.
func parseExportKey(binding *apisv1alpha2.APIBinding) (bindings.ExportKey, bool) {
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil || binding.Spec.Reference.Export == nil {
		return bindings.ExportKey{}, false
	}
	return bindings.ExportKey{Cluster: cluster, Name: binding.Spec.Reference.Export.Name}, true
}

// hashClaims returns the hash of the effective claims of a binding; zero if there are none.
func hashClaims(binding *apisv1alpha2.APIBinding) (contentHash, error) {
	export, known := parseExportKey(binding)
	accepted := effectiveClaims(binding)
	if !known || len(accepted) == 0 {
		return contentHash{}, nil
	}
	text, err := json.Marshal([]any{export.Cluster.String(), export.Name, accepted})
	if err != nil {
		return contentHash{}, fmt.Errorf("reading the claims of binding %q: %w", binding.Name, err)
	}
	return sha256.Sum256(text), nil
}

// newClaimSet returns the claim set of a binding with effective claims.
func newClaimSet(binding *apisv1alpha2.APIBinding, hash contentHash) *claimSet {
	s := &claimSet{hash: hash, claims: map[schema.GroupResource][]claim{}}
	export, _ := parseExportKey(binding)
	for _, accepted := range effectiveClaims(binding) {
		if isSubresource(accepted.PermissionClaim) {
			continue
		}
		gr := claimGroupResource(accepted.PermissionClaim)
		key, value := apiindex.ClaimLabel(export, accepted.PermissionClaim)
		s.claims[gr] = append(s.claims[gr], claim{key: key, value: value, identity: accepted.IdentityHash, selector: newSelector(accepted.Selector)})
	}
	return s
}

// isSubresource reports whether a claim is one of a subresource. It selects no objects: those that are visible by the claim
// of the resource have it.
func isSubresource(claim apisv1alpha2.PermissionClaim) bool {
	_, subresource := apiindex.ClaimedResource(claim)
	return subresource != ""
}

func claimGroupResource(claim apisv1alpha2.PermissionClaim) schema.GroupResource {
	return apiindex.NormalizeResource(schema.GroupResource{Group: claim.Group, Resource: claim.Resource})
}

// newSelector returns the selector of an accepted claim. An invalid or empty one selects nothing, so that the
// provider sees no object that the consumer did not select.
func newSelector(claimSelector apisv1alpha2.PermissionClaimSelector) labels.Selector {
	if claimSelector.MatchAll {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(&claimSelector.LabelSelector)
	if err != nil || selector.Empty() {
		return labels.Nothing()
	}
	return selector
}

// addLabels adds the claim labels of an object to wanted, which may be nil. own are the other labels of the object,
// identity returns the identity with which the resource is bound.
func (s *claimSet) addLabels(desired map[string]string, gr schema.GroupResource, identity func() (string, bool), objectLabels map[string]string) map[string]string {
	for _, c := range s.claims[gr] {
		if c.identity != "" {
			if bound, known := identity(); known && bound != c.identity {
				continue // another resource of the same name is bound
			}
		}
		if !c.selector.Matches(labels.Set(objectLabels)) {
			continue
		}
		if desired == nil {
			desired = map[string]string{}
		}
		desired[c.key] = c.value
	}
	return desired
}
