package apis

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

func validateClaim(claim apisv1alpha2.PermissionClaim, path *field.Path) field.ErrorList {
	errs := registry.Pattern(claim.Group, groupPattern, path.Child("group"))
	errs = append(errs, registry.Required(claim.Resource, path.Child("resource"))...)
	errs = append(errs, registry.Pattern(claim.Resource, resourcePattern, path.Child("resource"))...)
	verbs := path.Child("verbs")
	switch {
	case claim.Verbs == nil:
		errs = append(errs, field.Required(verbs, ""))
	case len(claim.Verbs) == 0:
		errs = append(errs, field.Invalid(verbs, 0, "should have at least 1 items"))
	}
	errs = append(errs, duplicates(claim.Verbs, identity, verbs)...)
	if claim.DefaultSelector != nil {
		errs = append(errs, registry.CompleteSelector(&claim.DefaultSelector.LabelSelector, path.Child("defaultSelector"))...)
	}
	return errs
}

func validateScopedClaim(claim apisv1alpha2.ScopedPermissionClaim, path *field.Path) field.ErrorList {
	return append(validateClaim(claim.PermissionClaim, path),
		registry.CompleteSelector(&claim.Selector.LabelSelector, path.Child("selector"))...)
}

// duplicates returns an error for each item with the key of a previous item.
func duplicates[T any](items []T, key func(T) string, path *field.Path) field.ErrorList {
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

// claimKey identifies a claim within a binding.
func claimKey(claim apisv1alpha2.PermissionClaim) string {
	return fmt.Sprintf("%s.%s:%s", claim.Resource, claim.Group, claim.IdentityHash)
}

func identity(value string) string { return value }
