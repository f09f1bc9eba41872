package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkspaceAuthenticationConfiguration holds issuers whose tokens are accepted in the workspaces of every WorkspaceType
// of the same workspace that names it. Users of such tokens exist in these workspaces only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
type WorkspaceAuthenticationConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// spec holds the issuers.
	// +required
	Spec WorkspaceAuthenticationConfigurationSpec `json:"spec"`
}

// WorkspaceAuthenticationConfigurationSpec holds issuers of tokens.
type WorkspaceAuthenticationConfigurationSpec struct {
	// jwt are the issuers of JSON web tokens, each once. They have the shape of those in the AuthenticationConfiguration
	// of Kubernetes.
	// +required
	JWT []JWTAuthenticator `json:"jwt"`
}

// JWTAuthenticator accepts the tokens of one issuer.
type JWTAuthenticator struct {
	// issuer says whose tokens they are.
	// +required
	Issuer Issuer `json:"issuer"`

	// claimValidationRules must all hold for the claims of a token.
	// +optional
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`

	// claimMappings say how claims become a user.
	// +required
	ClaimMappings ClaimMappings `json:"claimMappings"`

	// userValidationRules must all hold for the user.
	// +optional
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// Issuer says who issues tokens, and for whom.
type Issuer struct {
	// url is the issuer, as in the claim iss. Its keys are found by {url}/.well-known/openid-configuration.
	// +required
	URL string `json:"url"`

	// discoveryURL is read in place of {url}/.well-known/openid-configuration.
	// +optional
	DiscoveryURL string `json:"discoveryURL,omitempty"`

	// certificateAuthority is a PEM bundle that the issuer's server is verified by. Left out, those of the system are.
	// +optional
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// audiences are for whom a token must be, one of them at least.
	// +optional
	Audiences []string `json:"audiences,omitempty"`

	// audienceMatchPolicy must be MatchAny where there are several audiences.
	// +optional
	AudienceMatchPolicy AudienceMatchPolicyType `json:"audienceMatchPolicy,omitempty"`
}

// AudienceMatchPolicyType says how audiences are compared.
type AudienceMatchPolicyType string

// AudienceMatchPolicyMatchAny: one of the audiences suffices.
const AudienceMatchPolicyMatchAny AudienceMatchPolicyType = "MatchAny"

// ClaimValidationRule is a condition on the claims of a token: a claim with its value, or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be set"
// +kubebuilder:validation:XValidation:rule="has(self.requiredValue) == has(self.claim)",message="requiredValue must be set with claim, and only then"
// +kubebuilder:validation:XValidation:rule="has(self.message) == has(self.expression)",message="message must be set with expression, and only then"
type ClaimValidationRule struct {
	// claim is the name of a claim that must have requiredValue.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// requiredValue is the value of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	RequiredValue string `json:"requiredValue,omitempty"`

	// expression is CEL over `claims` that must be true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`

	// message tells in logs what it means that expression is not true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Message string `json:"message,omitempty"`
}

// ClaimMappings say how the claims of a token become a user.
type ClaimMappings struct {
	// username yields the user's name. A name that begins with "system:" is refused.
	// +optional
	Username PrefixedClaimOrExpression `json:"username,omitzero"`

	// groups yields the user's groups. Those that begin with "system:" are dropped.
	// +optional
	Groups PrefixedClaimOrExpression `json:"groups,omitzero"`

	// uid yields the user's UID.
	// +optional
	UID ClaimOrExpression `json:"uid,omitzero"`

	// extra yields further attributes. Keys that contain "kcp.io" are dropped.
	// +optional
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim whose value gets a prefix, or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be set"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix can only be set with claim"
type PrefixedClaimOrExpression struct {
	// claim is the name of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// prefix comes before the value of the claim. It must be set with claim, to "" for none.
	// +optional
	Prefix *string `json:"prefix,omitempty"`

	// expression is CEL over `claims`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim, or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be set"
type ClaimOrExpression struct {
	// claim is the name of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// expression is CEL over `claims`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping yields one further attribute of a user.
type ExtraMapping struct {
	// key is the attribute: a path that begins with a domain, in lower case.
	// +required
	Key string `json:"key"`

	// valueExpression is CEL over `claims`, a string or a list of strings.
	// +required
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is a condition on the user that claims became.
type UserValidationRule struct {
	// expression is CEL over `user` that must be true.
	// +required
	Expression string `json:"expression"`

	// message tells in logs what it means that expression is not true.
	// +required
	Message string `json:"message"`
}

// WorkspaceAuthenticationConfigurationList is a list of WorkspaceAuthenticationConfigurations.
//
// +kubebuilder:object:root=true
type WorkspaceAuthenticationConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkspaceAuthenticationConfiguration `json:"items"`
}
