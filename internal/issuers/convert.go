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

// compiler holds the CEL environments, which are expensive and the same for everybody.
var compiler = sync.OnceValue(authenticationcel.NewDefaultCompiler)

// Validate checks issuers as Kubernetes checks those of an AuthenticationConfiguration: URLs, audiences, CEL
// expressions, each issuer once. Fields are named from path on, which leads to the list.
func Validate(given []tenancyv1alpha1.JWTAuthenticator, path *field.Path) field.ErrorList {
	errs := apiservervalidation.ValidateAuthenticationConfiguration(compiler(), &apiserver.AuthenticationConfiguration{JWT: convertAll(given)}, nil)
	for _, err := range errs {
		err.Field = path.String() + strings.TrimPrefix(err.Field, "jwt") // where upstream's paths begin
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

// convert turns our type into the internal one of Kubernetes, which has the same fields and more.
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
