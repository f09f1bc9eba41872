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

// claim is one that holds for the objects of a logical cluster. It is shared by all clusters that accept the same, and
// never changes.
type claim struct {
	// key and value are the label of its objects.
	key, value string
	// identity is that of the resource where an export offers it, else empty.
	identity string
	selector labels.Selector
}

// claimSet is what one binding lets its provider see, by resource.
type claimSet struct {
	hash   contentHash
	claims map[schema.GroupResource][]claim
	refs   int
}

// contentHash identifies equal sets.
type contentHash [sha256.Size]byte

// Normal returns the resource under which claims of a resource are kept: events are one resource in two groups.
func Normal(gr schema.GroupResource) schema.GroupResource {
	if gr.Resource == "events" && gr.Group == "events.k8s.io" {
		gr.Group = ""
	}
	return gr
}

// effectiveClaims returns the claims that a binding accepts and its export, by what the status says, has, until the claims of
// the binding have ended.
func effectiveClaims(binding *apisv1alpha2.APIBinding) []apisv1alpha2.ScopedPermissionClaim {
	if claimsEnded(binding) || len(binding.Spec.PermissionClaims) == 0 {
		return nil
	}
	exported := indexByKey(binding.Status.ExportPermissionClaims, asIs)
	var found []apisv1alpha2.ScopedPermissionClaim
	for _, accepted := range binding.Spec.PermissionClaims {
		if _, claimed := exported[claimKeyOf(accepted.PermissionClaim)]; claimed && accepted.State == apisv1alpha2.ClaimAccepted {
			found = append(found, accepted.Scoped())
		}
	}
	return found
}

// exportKeyOf returns the export that a binding is bound to, if it is known.
func exportKeyOf(binding *apisv1alpha2.APIBinding) (bindings.ExportKey, bool) {
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil || binding.Spec.Reference.Export == nil {
		return bindings.ExportKey{}, false
	}
	return bindings.ExportKey{Cluster: cluster, Name: binding.Spec.Reference.Export.Name}, true
}

// hashClaims identifies what a binding lets its provider see. It is zero if that is nothing.
func hashClaims(binding *apisv1alpha2.APIBinding) (contentHash, error) {
	export, known := exportKeyOf(binding)
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

// newClaimSet makes the set of a binding that lets its provider see something.
func newClaimSet(binding *apisv1alpha2.APIBinding, hash contentHash) *claimSet {
	s := &claimSet{hash: hash, claims: map[schema.GroupResource][]claim{}}
	export, _ := exportKeyOf(binding)
	for _, accepted := range effectiveClaims(binding) {
		gr := resourceOf(accepted.PermissionClaim)
		key, value := apiindex.ClaimLabel(export, accepted.PermissionClaim)
		s.claims[gr] = append(s.claims[gr], claim{key: key, value: value, identity: accepted.IdentityHash, selector: selectorOf(accepted.Selector)})
	}
	return s
}

func resourceOf(claim apisv1alpha2.PermissionClaim) schema.GroupResource {
	return Normal(schema.GroupResource{Group: claim.Group, Resource: claim.Resource})
}

// selectorOf returns what a consumer selected. What cannot be understood, or says nothing at all, selects nothing:
// objects are not shown by mistake.
func selectorOf(of apisv1alpha2.PermissionClaimSelector) labels.Selector {
	if of.MatchAll {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(&of.LabelSelector)
	if err != nil || selector.Empty() {
		return labels.Nothing()
	}
	return selector
}

// addLabels adds to wanted the labels that the set puts on an object of a resource.
func (s *claimSet) addLabels(wanted map[string]string, gr schema.GroupResource, identity func() (string, bool), own map[string]string) map[string]string {
	for _, c := range s.claims[gr] {
		if c.identity != "" {
			if bound, known := identity(); known && bound != c.identity {
				continue // something else of that name is bound here
			}
		}
		if !c.selector.Matches(labels.Set(own)) {
			continue
		}
		if wanted == nil {
			wanted = map[string]string{}
		}
		wanted[c.key] = c.value
	}
	return wanted
}
