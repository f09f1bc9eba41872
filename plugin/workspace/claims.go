package workspace

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// claimBinding is the part of an APIBinding (apis.kcp.io/v1alpha2) that tells which claims its owner has answered.
type claimBinding struct {
	Spec struct {
		PermissionClaims []claim `json:"permissionClaims"`
	} `json:"spec"`
	Status struct {
		ExportPermissionClaims []claim `json:"exportPermissionClaims"`
	} `json:"status"`
}

type claim struct {
	Group        string   `json:"group"`
	Resource     string   `json:"resource"`
	IdentityHash string   `json:"identityHash"`
	Verbs        []string `json:"verbs"`
	State        string   `json:"state"`
}

func (c claim) String() string {
	return schema.GroupResource{Group: c.Group, Resource: c.Resource}.String()
}

func (c claim) sameObjects(other claim) bool {
	return c.Group == other.Group && c.Resource == other.Resource && c.IdentityHash == other.IdentityHash
}

func (c claim) verbs() string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(c.Verbs))), ",")
}

// claimWarnings returns one line for everything about the claims of one APIBinding that needs an answer of its owner.
// The checks are independent: a claim that the binding does not mention fails all three.
func claimWarnings(object unstructured.Unstructured) ([]string, error) {
	var binding claimBinding
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
		return nil, fmt.Errorf("reading the claims of APIBinding %q: %w", object.GetName(), err)
	}
	var lines []string
	for _, exported := range binding.Status.ExportPermissionClaims {
		var answer claim
		at := slices.IndexFunc(binding.Spec.PermissionClaims, exported.sameObjects)
		if at >= 0 {
			answer = binding.Spec.PermissionClaims[at]
		} else {
			lines = append(lines,
				fmt.Sprintf("Warning: claim for %s exported but not specified on APIBinding %s", exported, object.GetName()),
				"Add this claim to the APIBinding's spec.permissionClaims, accepted or rejected.")
		}
		if answer.State != "Accepted" && answer.State != "Rejected" {
			lines = append(lines, fmt.Sprintf("Warning: claim for %s specified on APIBinding %s but not accepted or rejected.", exported, object.GetName()))
		}
		if answer.verbs() != exported.verbs() {
			lines = append(lines, fmt.Sprintf("Warning: allowed verbs (%s) on claim for %s on APIBinding %s do not match expected verbs (%s).",
				answer.verbs(), exported, object.GetName(), exported.verbs()))
		}
	}
	return lines, nil
}
