package apis

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiBindings = &registry.Kind[*apisv1alpha2.APIBinding]{
	Resource:      apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"),
	OtherVersions: []string{apisv1alpha1.SchemeGroupVersion.Version},
	Singular:      "apibinding",

	New:        func() *apisv1alpha2.APIBinding { return &apisv1alpha2.APIBinding{} },
	NewList:    func() runtime.Object { return &apisv1alpha2.APIBindingList{} },
	Default:    install.DefaultAPIBinding,
	CopySpec:   func(to, from *apisv1alpha2.APIBinding) { to.Spec = from.Spec },
	CopyStatus: func(to, from *apisv1alpha2.APIBinding) { to.Status = from.Status },
	SameSpec:   func(a, b *apisv1alpha2.APIBinding) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
	SameStatus: func(a, b *apisv1alpha2.APIBinding) bool { return equality.Semantic.DeepEqual(a.Status, b.Status) },

	KeepStatus: registry.IsLoopbackRequest,

	ValidateName:       validateName,
	ValidateSpec:       validateBindingSpec,
	ValidateStatus:     validateBindingStatus,
	ValidateTransition: validateBindingTransition,

	ValidateStatusTransition: validateBindingStatusTransition,

	ValidateVersion: map[string]func(*apisv1alpha2.APIBinding) field.ErrorList{
		apisv1alpha1.SchemeGroupVersion.Version: validateBindingV1alpha1,
	},

	Columns: registry.Columns{registry.ComputedColumn("Export", printExport), registry.Age, registry.Column("Ready", `.status.conditions[?(@.type=="Ready")].status`)},
}

// printExport returns the export of a binding as users write it, with its path if that is not the binding's workspace.
func printExport(binding *apisv1alpha2.APIBinding) string {
	export := binding.Spec.Reference.Export
	switch {
	case export == nil:
		return ""
	case export.Path == "":
		return export.Name
	}
	return export.Path + ":" + export.Name
}

var (
	claimStates      = []apisv1alpha2.AcceptablePermissionClaimState{apisv1alpha2.ClaimAccepted, apisv1alpha2.ClaimRejected}
	deletionPolicies = []apisv1alpha2.APIBindingDeletionPolicy{apisv1alpha2.DeletionPolicyDelete, apisv1alpha2.DeletionPolicyWaitForSuccessor}
	// A binding that was not reconciled yet has no phase.
	bindingPhases = []apisv1alpha2.APIBindingPhaseType{apisv1alpha2.APIBindingPhaseBinding, apisv1alpha2.APIBindingPhaseBound}
)

func validateBindingSpec(binding *apisv1alpha2.APIBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateReference(binding.Spec.Reference.Export, path.Child("reference", "export"))
	errs = append(errs, registry.ValidateOneOf(binding.Spec.DeletionPolicy, deletionPolicies, path.Child("deletionPolicy"))...)
	claims := make([]apisv1alpha2.PermissionClaim, 0, len(binding.Spec.PermissionClaims))
	at := path.Child("permissionClaims")
	for i, claim := range binding.Spec.PermissionClaims {
		errs = append(errs, validateScopedClaim(claim.Scoped(), at.Index(i))...)
		errs = append(errs, registry.ValidateRequired(string(claim.State), at.Index(i).Child("state"))...)
		errs = append(errs, registry.ValidateOneOf(claim.State, claimStates, at.Index(i).Child("state"))...)
		claims = append(claims, claim.PermissionClaim)
	}
	return append(errs, validateUnique(claims, newClaimKey, at)...)
}

func validateReference(export *apisv1alpha2.ExportBindingReference, path *field.Path) field.ErrorList {
	if export == nil {
		return nil
	}
	return append(registry.ValidateRequired(export.Name, path.Child("name")), registry.ValidatePattern(export.Path, pathPattern, path.Child("path"))...)
}

const selectorImmutable = "Permission claim selector is immutable"

func validateBindingTransition(binding, old *apisv1alpha2.APIBinding) field.ErrorList {
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(binding.Spec.Reference, old.Spec.Reference) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "reference"), binding.Spec.Reference, "APIExport reference must not be changed"))
	}
	selectors := make(map[string]apisv1alpha2.PermissionClaimSelector, len(old.Spec.PermissionClaims))
	for _, claim := range old.Spec.PermissionClaims {
		selectors[newClaimKey(claim.PermissionClaim)] = claim.Selector
	}
	for i, claim := range binding.Spec.PermissionClaims {
		before, known := selectors[newClaimKey(claim.PermissionClaim)]
		if known && isUsableSelector(claim) && !equality.Semantic.DeepEqual(claim.Selector, before) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "permissionClaims").Index(i).Child("selector"), claim.Selector, selectorImmutable))
		}
	}
	return errs
}

func validateBindingStatusTransition(binding, old *apisv1alpha2.APIBinding) field.ErrorList {
	var errs field.ErrorList
	selectors := make(map[string]apisv1alpha2.PermissionClaimSelector, len(old.Status.AppliedPermissionClaims))
	for _, claim := range old.Status.AppliedPermissionClaims {
		selectors[newClaimKey(claim.PermissionClaim)] = claim.Selector
	}
	for i, claim := range binding.Status.AppliedPermissionClaims {
		if before, known := selectors[newClaimKey(claim.PermissionClaim)]; known && !equality.Semantic.DeepEqual(claim.Selector, before) {
			errs = append(errs, field.Invalid(field.NewPath("status", "appliedPermissionClaims").Index(i).Child("selector"), claim.Selector, selectorImmutable))
		}
	}
	return errs
}

// isUsableSelector reports whether admission accepts the selector of a claim, which otherwise reports why not.
func isUsableSelector(claim apisv1alpha2.AcceptablePermissionClaim) bool {
	byLabels := len(claim.Selector.MatchLabels)+len(claim.Selector.MatchExpressions) > 0
	if strings.Contains(claim.Resource, "/") {
		return !byLabels
	}
	return claim.Selector.MatchAll != byLabels
}

func validateBindingStatus(binding *apisv1alpha2.APIBinding) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateOneOf(binding.Status.Phase, bindingPhases, path.Child("phase"))
	errs = append(errs, registry.ValidateConditions(binding.Status.Conditions, path.Child("conditions"))...)
	errs = append(errs, validateBoundResources(binding.Status.BoundResources, path.Child("boundResources"))...)
	applied := make([]apisv1alpha2.PermissionClaim, 0, len(binding.Status.AppliedPermissionClaims))
	for i, claim := range binding.Status.AppliedPermissionClaims {
		errs = append(errs, validateScopedClaim(claim, path.Child("appliedPermissionClaims").Index(i))...)
		applied = append(applied, claim.PermissionClaim)
	}
	errs = append(errs, validateUnique(applied, newClaimKey, path.Child("appliedPermissionClaims"))...)
	for i, claim := range binding.Status.ExportPermissionClaims {
		errs = append(errs, validateClaim(claim, path.Child("exportPermissionClaims").Index(i))...)
	}
	return errs
}

func validateBoundResources(resources []apisv1alpha2.BoundAPIResource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, resource := range resources {
		at := path.Index(i)
		errs = append(errs, registry.ValidateRequired(resource.Resource, at.Child("resource"))...)
		errs = append(errs, registry.ValidateRequired(resource.Schema.Name, at.Child("schema", "name"))...)
		errs = append(errs, registry.ValidateRequired(resource.Schema.UID, at.Child("schema", "UID"))...)
		errs = append(errs, registry.ValidateRequired(resource.Schema.IdentityHash, at.Child("schema", "identityHash"))...)
		errs = append(errs, validateUnique(resource.StorageVersions, stringKey, at.Child("storageVersions"))...)
	}
	return append(errs, validateUnique(resources, func(resource apisv1alpha2.BoundAPIResource) string {
		return resource.Resource + "." + resource.Group
	}, path)...)
}
