package lifecycle

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// validateStatus restricts the status update of an owner: it may remove itself from its list and change conditions. Other
// initializers and terminators, the URL and the phase are immutable for it, so that no owner can skip another.
func (k *ownerKind) validateStatus(owner string, before, after *corev1alpha1.LogicalClusterStatus) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for _, kind := range []*ownerKind{initializing, terminating} {
		oldOwners, newOwners := kind.listOwners(before), kind.listOwners(after)
		if slices.Equal(oldOwners, newOwners) || kind == k && slices.Equal(removeItem(oldOwners, owner), newOwners) {
			continue
		}
		errs = append(errs, field.Invalid(path.Child(kind.field), newOwners, fmt.Sprintf("only removing the %q %s is supported", owner, k.noun)))
	}
	if before.Phase != after.Phase {
		errs = append(errs, field.Invalid(path.Child("phase"), after.Phase, "follows from the rest of the status and cannot be set"))
	}
	if before.URL != after.URL {
		errs = append(errs, field.Invalid(path.Child("URL"), after.URL, "is set by the server"))
	}
	return errs
}

func removeItem(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(other string) bool { return other == item })
}
