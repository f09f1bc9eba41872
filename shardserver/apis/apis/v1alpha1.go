package apis

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/apis/conversion"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Validation of exports and bindings that a client sent as v1alpha1. It converts the stored version back, which
// restores the object that the client sent.

var selectedNamePattern = regexp.MustCompile(`^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$`)

const maxSelectedNameLength = 253

func validateExportV1alpha1(converted *apisv1alpha2.APIExport) field.ErrorList {
	var export apisv1alpha1.APIExport
	if err := conversion.ExportToV1alpha1(converted, &export); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	path := field.NewPath("spec")
	errs := validateUnique(export.Spec.LatestResourceSchemas, stringKey, path.Child("latestResourceSchemas"))
	for i, claim := range export.Spec.PermissionClaims {
		errs = append(errs, validateClaimV1alpha1(claim, path.Child("permissionClaims").Index(i))...)
	}
	return errs
}

func validateBindingV1alpha1(converted *apisv1alpha2.APIBinding) field.ErrorList {
	var binding apisv1alpha1.APIBinding
	if err := conversion.BindingToV1alpha1(converted, &binding); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	path := field.NewPath("spec")
	var errs field.ErrorList
	if binding.Spec.Reference.Export == nil {
		errs = append(errs, field.Invalid(path.Child("reference"), "", "exactly one of the fields in [export] must be set"))
	}
	for i, claim := range binding.Spec.PermissionClaims {
		errs = append(errs, validateClaimV1alpha1(claim.PermissionClaim, path.Child("permissionClaims").Index(i))...)
	}
	return errs
}

func validateClaimV1alpha1(claim apisv1alpha1.PermissionClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if claim.All == (len(claim.ResourceSelector) > 0) {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%s.%s", claim.Resource, claim.Group), `either "all" or "resourceSelector" must be set`))
	}
	for i, selector := range claim.ResourceSelector {
		at := path.Child("resourceSelector").Index(i)
		if selector.Name == "" && selector.Namespace == "" {
			errs = append(errs, field.Invalid(at, "", "at least one field must be set"))
		}
		errs = append(errs, registry.ValidatePattern(selector.Name, selectedNamePattern, at.Child("name"))...)
		errs = append(errs, registry.ValidateMaxLength(selector.Name, maxSelectedNameLength, at.Child("name"))...)
	}
	return errs
}
