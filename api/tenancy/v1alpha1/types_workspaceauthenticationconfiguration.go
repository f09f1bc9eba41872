package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkspaceAuthenticationConfiguration defines token issuers that are trusted in workspaces. It applies to workspaces
// whose WorkspaceType references it, and must be in the same workspace as that WorkspaceType. Users authenticated by
// these tokens are valid in these workspaces only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
type WorkspaceAuthenticationConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// spec is the desired state of the authentication configuration.
	// +required
	Spec WorkspaceAuthenticationConfigurationSpec `json:"spec"`
}

// WorkspaceAuthenticationConfigurationSpec describes the desired state of a WorkspaceAuthenticationConfiguration.
type WorkspaceAuthenticationConfigurationSpec struct {
	// jwt is a list of authenticators for JSON Web Tokens. Issuers must be unique. The format corresponds to jwt in the
	// AuthenticationConfiguration of Kubernetes.
	// +required
	JWT []JWTAuthenticator `json:"jwt"`
}

// JWTAuthenticator configures authentication by the tokens of one issuer.
type JWTAuthenticator struct {
	// issuer is the issuer of the tokens.
	// +required
	Issuer Issuer `json:"issuer"`

	// claimValidationRules are the rules for the claims of a token. All rules must be satisfied.
	// +optional
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`

	// claimMappings map the claims of a token to attributes of the user.
	// +required
	ClaimMappings ClaimMappings `json:"claimMappings"`

	// userValidationRules are the rules for the user. All rules must be satisfied.
	// +optional
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// Issuer describes an issuer of tokens and the accepted audiences.
type Issuer struct {
	// url is the URL of the issuer. Must match the iss claim of tokens. The signing keys are discovered from
	// {url}/.well-known/openid-configuration.
	// +required
	URL string `json:"url"`

	// discoveryURL is the URL of the discovery document. Defaults to {url}/.well-known/openid-configuration.
	// +optional
	DiscoveryURL string `json:"discoveryURL,omitempty"`

	// certificateAuthority contains the PEM-encoded CA certificates for verifying the serving certificate of the
	// issuer. If unset, the CA certificates of the system are used.
	// +optional
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// audiences are the accepted audiences. A token must be issued for at least one of them.
	// +optional
	Audiences []string `json:"audiences,omitempty"`

	// audienceMatchPolicy defines how the audiences of a token are matched. Must be MatchAny if there are multiple
	// audiences.
	// +optional
	AudienceMatchPolicy AudienceMatchPolicyType `json:"audienceMatchPolicy,omitempty"`
}

// AudienceMatchPolicyType defines how the audiences of a token are matched.
type AudienceMatchPolicyType string

// AudienceMatchPolicyMatchAny means that a token must be issued for at least one of the audiences.
const AudienceMatchPolicyMatchAny AudienceMatchPolicyType = "MatchAny"

// ClaimValidationRule is a rule for the claims of a token. Exactly one of claim and expression must be set.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression must be specified"
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="has(self.requiredValue) == has(self.claim)",message="requiredValue must be specified when claim is specified, and only then"
// +kubebuilder:validation:XValidation:rule="has(self.message) == has(self.expression)",message="message must be specified when expression is specified, and only then"
type ClaimValidationRule struct {
	// claim is the name of a required claim. Must be set together with requiredValue.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// requiredValue is the required value of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	RequiredValue string `json:"requiredValue,omitempty"`

	// expression is a CEL expression over the variable `claims`. Must evaluate to true. Must be set together with
	// message.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`

	// message is a human-readable description of the failed rule, for logs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Message string `json:"message,omitempty"`
}

// ClaimMappings map the claims of a token to attributes of the user.
type ClaimMappings struct {
	// username is the mapping for the user name. Tokens with a user name that starts with "system:" are rejected.
	// +optional
	Username PrefixedClaimOrExpression `json:"username,omitzero"`

	// groups is the mapping for the groups of the user. Groups that start with "system:" are ignored.
	// +optional
	Groups PrefixedClaimOrExpression `json:"groups,omitzero"`

	// uid is the mapping for the UID of the user.
	// +optional
	UID ClaimOrExpression `json:"uid,omitzero"`

	// extra are the mappings for extra attributes of the user. Attributes whose key contains "kcp.io" are ignored.
	// +optional
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with a prefix, or a CEL expression. Exactly one of claim and expression must be
// set.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression must be specified"
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix can only be specified when claim is specified"
type PrefixedClaimOrExpression struct {
	// claim is the name of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// prefix is prepended to the value of the claim. Must be set if claim is set. An empty string means no prefix.
	// +optional
	Prefix *string `json:"prefix,omitempty"`

	// expression is a CEL expression over the variable `claims`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim or a CEL expression. At most one of claim and expression can be set.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="claim and expression cannot both be specified"
type ClaimOrExpression struct {
	// claim is the name of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// expression is a CEL expression over the variable `claims`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping is the mapping for one extra attribute of a user.
type ExtraMapping struct {
	// key is the key of the attribute. Must be a lower-case path prefixed with a domain.
	// +required
	Key string `json:"key"`

	// valueExpression is a CEL expression over the variable `claims`. Must evaluate to a string or a list of strings.
	// +required
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is a rule for the user that results from the claim mappings.
type UserValidationRule struct {
	// expression is a CEL expression over the variable `user`. Must evaluate to true.
	// +required
	Expression string `json:"expression"`

	// message is a human-readable description of the failed rule, for logs.
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
