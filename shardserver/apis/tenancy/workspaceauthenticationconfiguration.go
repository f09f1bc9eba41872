package tenancy

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
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

// validateConfigurationSpec applies the rules of the schema. A configuration that they accept may be one that
// authenticates no token: package tenancy reports that.
func validateConfigurationSpec(configuration *tenancyv1alpha1.WorkspaceAuthenticationConfiguration) field.ErrorList {
	at := field.NewPath("spec", "jwt")
	if configuration.Spec.JWT == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i, jwt := range configuration.Spec.JWT {
		errs = append(errs, validateJWT(jwt, at.Index(i))...)
	}
	return errs
}

func validateJWT(jwt tenancyv1alpha1.JWTAuthenticator, at *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(jwt.Issuer.URL, at.Child("issuer", "url"))
	for i, rule := range jwt.ClaimValidationRules {
		errs = append(errs, validateClaimRule(rule, at.Child("claimValidationRules").Index(i))...)
	}
	mappings := at.Child("claimMappings")
	errs = append(errs, validateMapping(jwt.ClaimMappings.Username, mappings.Child("username"))...)
	errs = append(errs, validateMapping(jwt.ClaimMappings.Groups, mappings.Child("groups"))...)
	if uid := jwt.ClaimMappings.UID; uid.Claim != "" && uid.Expression != "" {
		errs = append(errs, violation(mappings.Child("uid"), claimAndExpression))
	}
	for i, extra := range jwt.ClaimMappings.Extra {
		errs = append(errs, registry.ValidateRequired(extra.Key, mappings.Child("extra").Index(i).Child("key"))...)
		errs = append(errs, registry.ValidateRequired(extra.ValueExpression, mappings.Child("extra").Index(i).Child("valueExpression"))...)
	}
	for i, rule := range jwt.UserValidationRules {
		errs = append(errs, registry.ValidateRequired(rule.Expression, at.Child("userValidationRules").Index(i).Child("expression"))...)
	}
	return errs
}

// Messages of the rules of the schema.
const (
	claimAndExpression     = "claim and expression cannot both be specified"
	claimOrExpression      = "claim or expression must be specified"
	prefixWithClaim        = "prefix can only be specified when claim is specified"
	requiredValueWithClaim = "requiredValue must be specified when claim is specified, and only then"
	messageWithExpression  = "message must be specified when expression is specified, and only then"
)

// violation is the error of a rule of a schema, as for custom resources.
func violation(at *field.Path, message string) *field.Error {
	return field.Invalid(at, "object", message)
}

func validateClaimRule(rule tenancyv1alpha1.ClaimValidationRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rule.Claim == "" && rule.Expression == "" {
		errs = append(errs, violation(at, claimOrExpression))
	}
	if rule.Claim != "" && rule.Expression != "" {
		errs = append(errs, violation(at, claimAndExpression))
	}
	if (rule.RequiredValue != "") != (rule.Claim != "") {
		errs = append(errs, violation(at, requiredValueWithClaim))
	}
	if (rule.Message != "") != (rule.Expression != "") {
		errs = append(errs, violation(at, messageWithExpression))
	}
	return errs
}

// validateMapping validates a mapping. One that is not set has no rules.
func validateMapping(mapping tenancyv1alpha1.PrefixedClaimOrExpression, at *field.Path) field.ErrorList {
	if mapping == (tenancyv1alpha1.PrefixedClaimOrExpression{}) {
		return nil
	}
	var errs field.ErrorList
	if mapping.Claim == "" && mapping.Expression == "" {
		errs = append(errs, violation(at, claimOrExpression))
	}
	if mapping.Claim != "" && mapping.Expression != "" {
		errs = append(errs, violation(at, claimAndExpression))
	}
	if mapping.Prefix != nil && mapping.Claim == "" {
		errs = append(errs, violation(at, prefixWithClaim))
	}
	return errs
}
