package binding

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Warnings returns the warnings about claims of one APIBinding (v1alpha2) that need a decision of its owner. The checks
// are independent: a claim that the binding does not contain fails all three.
func Warnings(object *unstructured.Unstructured) ([]string, error) {
	binding, err := decodeClaims(object)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, exported := range binding.Status.ExportPermissionClaims {
		var specified claim
		at := slices.IndexFunc(binding.Spec.PermissionClaims, exported.hasSameResource)
		if at >= 0 {
			specified = binding.Spec.PermissionClaims[at]
		} else {
			lines = append(lines,
				fmt.Sprintf("Warning: claim for %s exported but not specified on APIBinding %s", exported, object.GetName()),
				"Add this claim to the APIBinding's spec.permissionClaims, accepted or rejected.")
		}
		if specified.State != accepted && specified.State != rejected {
			lines = append(lines, fmt.Sprintf("Warning: claim for %s specified on APIBinding %s but not accepted or rejected.", exported, object.GetName()))
		}
		if specified.verbs() != exported.verbs() {
			lines = append(lines, fmt.Sprintf("Warning: allowed verbs (%s) on claim for %s on APIBinding %s do not match expected verbs (%s).",
				specified.verbs(), exported, object.GetName(), exported.verbs()))
		}
	}
	return lines, nil
}
