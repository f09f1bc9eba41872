package issuers

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/celcost"
)

// compiler contains the CEL environments, which are expensive to create and shared.
var compiler = sync.OnceValue(authenticationcel.NewDefaultCompiler)

// Validate returns why tokens of issuers cannot be authenticated, as Kubernetes validates the issuers of an
// AuthenticationConfiguration: URLs, audiences, CEL expressions, unique issuers. path is the field path of the list.
func Validate(given []tenancyv1alpha1.JWTAuthenticator, path *field.Path) field.ErrorList {
	errs := apiservervalidation.ValidateAuthenticationConfiguration(compiler(), &apiserver.AuthenticationConfiguration{JWT: convertAll(given)}, nil)
	for _, err := range errs {
		err.Field = path.String() + strings.TrimPrefix(err.Field, "jwt") // upstream's paths start with it
	}
	return append(errs, checkCosts(given, path)...)
}

// checkCosts refuses expressions that exceed their cost limit whenever they are evaluated. Front proxies evaluate them before they know
// the user.
func checkCosts(given []tenancyv1alpha1.JWTAuthenticator, path *field.Path) (errs field.ErrorList) {
	check := func(at *field.Path, expression string) {
		if err := celcost.CheckExpression(expression, celconfig.PerCallLimit, nil); err != nil {
			errs = append(errs, field.Invalid(at, expression, err.Error()))
		}
	}
	for i := range given {
		at, issuer := path.Index(i), &given[i]
		mappings := at.Child("claimMappings")
		check(mappings.Child("username", "expression"), issuer.ClaimMappings.Username.Expression)
		check(mappings.Child("groups", "expression"), issuer.ClaimMappings.Groups.Expression)
		check(mappings.Child("uid", "expression"), issuer.ClaimMappings.UID.Expression)
		for j, extra := range issuer.ClaimMappings.Extra {
			check(mappings.Child("extra").Index(j).Child("valueExpression"), extra.ValueExpression)
		}
		for j, rule := range issuer.ClaimValidationRules {
			check(at.Child("claimValidationRules").Index(j).Child("expression"), rule.Expression)
		}
		for j, rule := range issuer.UserValidationRules {
			check(at.Child("userValidationRules").Index(j).Child("expression"), rule.Expression)
		}
	}
	return errs
}

func convertAll(given []tenancyv1alpha1.JWTAuthenticator) []apiserver.JWTAuthenticator {
	converted := make([]apiserver.JWTAuthenticator, 0, len(given))
	for i := range given {
		converted = append(converted, convert(&given[i]))
	}
	return converted
}

// convert returns the internal type of Kubernetes, which has the same fields and more.
func convert(given *tenancyv1alpha1.JWTAuthenticator) apiserver.JWTAuthenticator {
	converted := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL:                  given.Issuer.URL,
			DiscoveryURL:         given.Issuer.DiscoveryURL,
			CertificateAuthority: given.Issuer.CertificateAuthority,
			Audiences:            given.Issuer.Audiences,
			AudienceMatchPolicy:  apiserver.AudienceMatchPolicyType(given.Issuer.AudienceMatchPolicy),
		},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression(given.ClaimMappings.Username),
			Groups:   apiserver.PrefixedClaimOrExpression(given.ClaimMappings.Groups),
			UID:      apiserver.ClaimOrExpression(given.ClaimMappings.UID),
		},
	}
	for _, rule := range given.ClaimValidationRules {
		converted.ClaimValidationRules = append(converted.ClaimValidationRules, apiserver.ClaimValidationRule(rule))
	}
	for _, extra := range given.ClaimMappings.Extra {
		converted.ClaimMappings.Extra = append(converted.ClaimMappings.Extra, apiserver.ExtraMapping(extra))
	}
	for _, rule := range given.UserValidationRules {
		converted.UserValidationRules = append(converted.UserValidationRules, apiserver.UserValidationRule(rule))
	}
	return converted
}
