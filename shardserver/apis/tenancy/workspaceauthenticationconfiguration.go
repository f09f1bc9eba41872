package tenancy

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var workspaceAuthenticationConfigurations = &registry.Kind[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]{
	Resource: tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaceauthenticationconfigurations"),
	Singular: "workspaceauthenticationconfiguration",

	New: func() *tenancyv1alpha1.WorkspaceAuthenticationConfiguration {
		return &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{}
	},
	NewList:  func() runtime.Object { return &tenancyv1alpha1.WorkspaceAuthenticationConfigurationList{} },
	CopySpec: func(to, from *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) { to.Spec = from.Spec },
	SameSpec: func(a, b *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},

	ValidateName: validateConfigurationName,
	ValidateSpec: validateConfigurationSpec,
}

func validateConfigurationName(name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range content.IsPathSegmentName(name) {
		errs = append(errs, field.Invalid(at, name, problem))
	}
	return errs
}

// validateConfigurationSpec applies the rules of the schema and then those of Kubernetes: a configuration that cannot
// authenticate any token is refused.
func validateConfigurationSpec(configuration *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) field.ErrorList {
	at := field.NewPath("spec", "jwt")
	if configuration.Spec.JWT == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i, jwt := range configuration.Spec.JWT {
		rules := at.Index(i).Child("claimValidationRules")
		for j, rule := range jwt.ClaimValidationRules {
			errs = append(errs, validateClaimRule(rule, rules.Index(j))...)
		}
	}
	return append(errs, issuers.Validate(configuration.Spec.JWT, at)...)
}

// validateClaimRule validates the fields of claims and of expressions. That exactly one of them is set is checked by
// the rules of Kubernetes.
func validateClaimRule(rule tenancyv1alpha1.ClaimValidationRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rule.Claim != "" {
		errs = append(errs, registry.ValidateRequired(rule.RequiredValue, at.Child("requiredValue"))...)
	}
	if rule.Expression != "" {
		errs = append(errs, registry.ValidateRequired(rule.Message, at.Child("message"))...)
	}
	return errs
}
