package binding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The states of a claim in the API.
const (
	accepted = "Accepted"
	rejected = "Rejected"
)

// coreGroup is how users write the legacy group: "configmaps.core".
const coreGroup = "core"

// claim is a permission claim of an export, or the corresponding entry in a binding, in either version of the API.
type claim struct {
	Group        string   `json:"group"`
	Resource     string   `json:"resource"`
	IdentityHash string   `json:"identityHash"`
	Verbs        []string `json:"verbs"` // v1alpha2 only
	State        string   `json:"state"` // bindings only
	// DefaultSelector is the selector that the export proposes (v1alpha2 only).
	DefaultSelector map[string]any `json:"defaultSelector"`
}

func (c claim) String() string {
	return schema.GroupResource{Group: c.Group, Resource: c.Resource}.String()
}

func (c claim) hasSameResource(other claim) bool {
	return c.Group == other.Group && c.Resource == other.Resource && c.IdentityHash == other.IdentityHash
}

func (c claim) verbs() string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(c.Verbs))), ",")
}

// object returns the claim as an entry of spec.permissionClaims of a binding in a version of the API. A v1alpha2 claim
// without verbs means all, one without selector covers all objects.
func (c claim) object(version string) map[string]any {
	entry := map[string]any{"group": c.Group, "resource": c.Resource, "state": c.State}
	if c.IdentityHash != "" {
		entry["identityHash"] = c.IdentityHash
	}
	if version == "v1alpha1" {
		entry["all"] = true
		return entry
	}
	verbs, selector := c.Verbs, c.DefaultSelector
	if len(verbs) == 0 {
		verbs = []string{"*"}
	}
	if len(selector) == 0 {
		selector = map[string]any{"matchAll": true}
	}
	entry["verbs"], entry["selector"] = toAnySlice(verbs), runtime.DeepCopyJSON(selector)
	return entry
}

func toAnySlice(values []string) []any {
	all := make([]any, 0, len(values))
	for _, value := range values {
		all = append(all, value)
	}
	return all
}

// parseClaim parses RESOURCE.GROUP; "configmaps.core" and "configmaps" are the same.
func parseClaim(text string) (claim, error) {
	resource, group, _ := strings.Cut(text, ".")
	if resource == "" || strings.HasSuffix(text, ".") {
		return claim{}, fmt.Errorf("invalid permission claim %q: want RESOURCE.GROUP, as in deployments.apps or configmaps.core", text)
	}
	if group == coreGroup {
		group = ""
	}
	return claim{Group: group, Resource: resource}, nil
}

// claims holds the claims of an APIBinding, or of an APIExport, which has only spec.permissionClaims.
type claims struct {
	Spec struct {
		PermissionClaims []claim `json:"permissionClaims"`
	} `json:"spec"`
	Status struct {
		ExportPermissionClaims []claim `json:"exportPermissionClaims"`
	} `json:"status"`
}

func decodeClaims(object *unstructured.Unstructured) (claims, error) {
	var c claims
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c); err != nil {
		return claims{}, fmt.Errorf("reading the claims of %s %q: %w", object.GetKind(), object.GetName(), err)
	}
	return c, nil
}

// notBoundError returns the phase of an APIBinding and its false conditions as an error.
func notBoundError(object *unstructured.Unstructured) error {
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	reasons := []string{"phase " + orElse(phase, "unknown")}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, ok := raw.(map[string]any)
		if !ok || condition["status"] != "False" || condition["type"] == "Ready" {
			continue // Ready summarizes the others
		}
		reasons = append(reasons, fmt.Sprintf("%v: %v: %v", condition["type"], condition["reason"], condition["message"]))
	}
	return errors.New(strings.Join(reasons, ", "))
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
