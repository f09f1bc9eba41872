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

// set is what one binding lets its provider see, by resource.
type set struct {
	content content
	claims  map[schema.GroupResource][]claim
	users   int
}

// content identifies equal sets.
type content [sha256.Size]byte

// Normal returns the resource under which claims of a resource are kept: events are one resource in two groups.
func Normal(gr schema.GroupResource) schema.GroupResource {
	if gr.Resource == "events" && gr.Group == "events.k8s.io" {
		gr.Group = ""
	}
	return gr
}

// effective returns the claims that a binding accepts and its export, by what the status says, has, until the claims of
// the binding have ended.
func effective(binding *apisv1alpha2.APIBinding) []apisv1alpha2.ScopedPermissionClaim {
	if ended(binding) || len(binding.Spec.PermissionClaims) == 0 {
		return nil
	}
	exported := byResource(binding.Status.ExportPermissionClaims, plain)
	var found []apisv1alpha2.ScopedPermissionClaim
	for _, accepted := range binding.Spec.PermissionClaims {
		if _, claimed := exported[griOf(accepted.PermissionClaim)]; claimed && accepted.State == apisv1alpha2.ClaimAccepted {
			found = append(found, accepted.Scoped())
		}
	}
	return found
}

// exportOf returns the export that a binding is bound to, if it is known.
func exportOf(binding *apisv1alpha2.APIBinding) (bindings.Export, bool) {
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil || binding.Spec.Reference.Export == nil {
		return bindings.Export{}, false
	}
	return bindings.Export{Cluster: cluster, Name: binding.Spec.Reference.Export.Name}, true
}

// contentOf identifies what a binding lets its provider see. It is zero if that is nothing.
func contentOf(binding *apisv1alpha2.APIBinding) (content, error) {
	export, known := exportOf(binding)
	accepted := effective(binding)
	if !known || len(accepted) == 0 {
		return content{}, nil
	}
	text, err := json.Marshal([]any{export.Cluster.String(), export.Name, accepted})
	if err != nil {
		return content{}, fmt.Errorf("reading the claims of binding %q: %w", binding.Name, err)
	}
	return sha256.Sum256(text), nil
}

// newSet makes the set of a binding that lets its provider see something.
func newSet(binding *apisv1alpha2.APIBinding, of content) *set {
	s := &set{content: of, claims: map[schema.GroupResource][]claim{}}
	export, _ := exportOf(binding)
	for _, accepted := range effective(binding) {
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

// apply adds to wanted the labels that the set puts on an object of a resource.
func (s *set) apply(wanted map[string]string, gr schema.GroupResource, identity func() (string, bool), own map[string]string) map[string]string {
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
