package admin

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var permissionClaimPolicies = &registry.Kind[*adminv1alpha1.PermissionClaimPolicy]{
	Resource: adminv1alpha1.SchemeGroupVersion.WithResource("permissionclaimpolicies"),
	Singular: "permissionclaimpolicy",

	New:      func() *adminv1alpha1.PermissionClaimPolicy { return &adminv1alpha1.PermissionClaimPolicy{} },
	NewList:  func() runtime.Object { return &adminv1alpha1.PermissionClaimPolicyList{} },
	CopySpec: func(to, from *adminv1alpha1.PermissionClaimPolicy) { to.Spec = from.Spec },
	SameSpec: func(a, b *adminv1alpha1.PermissionClaimPolicy) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},

	ValidateName: validateName,
	ValidateSpec: validatePolicySpec,
}

func validateName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

// claimerPattern is the form of a claimer.
var claimerPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func validatePolicySpec(policy *adminv1alpha1.PermissionClaimPolicy) field.ErrorList {
	path := field.NewPath("spec")
	claims, providers := path.Child("claims"), path.Child("providers")
	var errs field.ErrorList
	switch {
	case policy.Spec.Claims == nil:
		errs = append(errs, field.Required(claims, ""))
	case len(policy.Spec.Claims) == 0:
		errs = append(errs, field.Invalid(claims, 0, "should have at least 1 items"))
	}
	claimers := map[string]bool{}
	for i, claim := range policy.Spec.Claims {
		at := claims.Index(i)
		errs = append(errs, registry.ValidateRequired(claim.Claimer, at.Child("claimer"))...)
		errs = append(errs, registry.ValidatePattern(claim.Claimer, claimerPattern, at.Child("claimer"))...)
		if claimers[claim.Claimer] {
			errs = append(errs, field.Duplicate(at, claim.Claimer))
		}
		claimers[claim.Claimer] = true
		errs = append(errs, validateGroups(claim.Groups, at.Child("groups"))...)
	}
	for i, subject := range policy.Spec.Providers {
		at := providers.Index(i)
		errs = append(errs, registry.ValidateRequired(subject.Kind, at.Child("kind"))...)
		errs = append(errs, registry.ValidateOneOf(subject.Kind, []string{adminv1alpha1.PolicySubjectUser, adminv1alpha1.PolicySubjectGroup}, at.Child("kind"))...)
		errs = append(errs, registry.ValidateRequired(subject.Name, at.Child("name"))...)
	}
	return errs
}

func validateGroups(groups []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case groups == nil:
		errs = append(errs, field.Required(path, ""))
	case len(groups) == 0:
		errs = append(errs, field.Invalid(path, 0, "should have at least 1 items"))
	}
	seen := map[string]bool{}
	for i, group := range groups {
		if seen[group] {
			errs = append(errs, field.Duplicate(path.Index(i), group))
		}
		seen[group] = true
	}
	return errs
}
