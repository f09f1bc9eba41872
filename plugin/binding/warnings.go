package binding

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Warnings returns one line for each claim of an APIBinding (v1alpha2) that needs a decision of its owner, with the command
// for that. flags are those that the command needs to find the workspace, if any.
func Warnings(object *unstructured.Unstructured, flags string) ([]string, error) {
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
		}
		accept := fmt.Sprintf("kubectl kcp claims accept %s --resource %s.%s%s", object.GetName(), exported.Resource, orElse(exported.Group, coreGroup), flags)
		switch {
		case at < 0:
			lines = append(lines, fmt.Sprintf("Warning: claim for %s exported but not specified on APIBinding %s. Accept it: %s", exported, object.GetName(), accept))
		case specified.State != accepted && specified.State != rejected:
			lines = append(lines, fmt.Sprintf("Warning: claim for %s specified on APIBinding %s but not accepted or rejected. Accept it: %s", exported, object.GetName(), accept))
		case specified.State == accepted && specified.verbs() != exported.verbs():
			next := "Change the verbs in its spec.permissionClaims."
			if specified.verbs() == "*" { // which the command replaces
				next = "Accept them: " + accept
			}
			lines = append(lines, fmt.Sprintf("Warning: allowed verbs (%s) on claim for %s on APIBinding %s do not match expected verbs (%s). %s",
				specified.verbs(), exported, object.GetName(), exported.verbs(), next))
		}
	}
	return lines, nil
}
