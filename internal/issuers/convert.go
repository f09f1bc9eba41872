package issuers

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
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
