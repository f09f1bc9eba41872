package apis

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

func validateClaim(claim apisv1alpha2.PermissionClaim, path *field.Path) field.ErrorList {
	errs := registry.ValidatePattern(claim.Group, groupPattern, path.Child("group"))
	errs = append(errs, registry.ValidateRequired(claim.Resource, path.Child("resource"))...)
	errs = append(errs, registry.ValidatePattern(claim.Resource, resourcePattern, path.Child("resource"))...)
	verbs := path.Child("verbs")
	switch {
	case claim.Verbs == nil:
		errs = append(errs, field.Required(verbs, ""))
	case len(claim.Verbs) == 0:
		errs = append(errs, field.Invalid(verbs, 0, "should have at least 1 items"))
	}
	errs = append(errs, validateUnique(claim.Verbs, stringKey, verbs)...)
	if claim.DefaultSelector != nil {
		errs = append(errs, registry.ValidateSelector(&claim.DefaultSelector.LabelSelector, path.Child("defaultSelector"))...)
	}
	return errs
}

func validateScopedClaim(claim apisv1alpha2.ScopedPermissionClaim, path *field.Path) field.ErrorList {
	return append(validateClaim(claim.PermissionClaim, path),
		registry.ValidateSelector(&claim.Selector.LabelSelector, path.Child("selector"))...)
}

// validateUnique returns an error for each item with the key of a previous item.
func validateUnique[T any](items []T, key func(T) string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool, len(items))
	for i, item := range items {
		if seen[key(item)] {
			errs = append(errs, field.Duplicate(path.Index(i), key(item)))
		}
		seen[key(item)] = true
	}
	return errs
}

// newClaimKey identifies a claim within a binding.
func newClaimKey(claim apisv1alpha2.PermissionClaim) string {
	return fmt.Sprintf("%s.%s:%s", claim.Resource, claim.Group, claim.IdentityHash)
}

func stringKey(value string) string { return value }
