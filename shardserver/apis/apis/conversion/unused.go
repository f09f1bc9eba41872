package conversion

import (
	"cmp"
	"errors"
	"fmt"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// CheckExportAnnotations returns why preserved annotations of an export that was converted from v1alpha1 were not
// used, or nil: conversion removes annotations that it uses.
func CheckExportAnnotations(converted *apisv1alpha2.APIExport) error {
	claims := mapItems(converted.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) apisv1alpha1.PermissionClaim {
		return claimToV1alpha1(claim, nil)
	})
	return errors.Join(
		checkAnnotationUsed(converted.Annotations, apisv1alpha2.ResourceSchemasAnnotationKey, validateUnique),
		checkAnnotationUsed(converted.Annotations, apisv1alpha2.PermissionClaimsAnnotationKey, newClaimsValidator(keyV1alpha2, claims)),
	)
}

// CheckBindingAnnotations is CheckExportAnnotations for bindings.
func CheckBindingAnnotations(converted *apisv1alpha2.APIBinding) error {
	claims := mapItems(converted.Spec.PermissionClaims, func(claim apisv1alpha2.AcceptablePermissionClaim) apisv1alpha1.PermissionClaim {
		return claimToV1alpha1(claim.PermissionClaim, nil)
	})
	return errors.Join(
		checkAnnotationUsed(converted.Annotations, apisv1alpha2.AcceptablePermissionClaimsAnnotationKey, newClaimsValidator(keyAcceptable, claims)),
		checkAnnotationUsed(converted.Annotations, apisv1alpha2.StatusExportPermissionClaimsAnnotationKey, acceptAll[apisv1alpha2.PermissionClaim]),
		checkAnnotationUsed(converted.Annotations, apisv1alpha2.StatusAppliedPermissionClaimsAnnotationKey, acceptAll[apisv1alpha2.ScopedPermissionClaim]),
	)
}

func checkAnnotationUsed[T any](annotations map[string]string, key string, validate func([]T) error) error {
	if _, ok := annotations[key]; !ok {
		return nil
	}
	_, err := decodeAnnotation(annotations, key, validate)
	return fmt.Errorf("annotation %s cannot be used: %w", key, cmp.Or(err, errUnused))
}

// errUnused cannot happen: conversion uses every valid annotation.
var errUnused = errors.New("it was not used")
