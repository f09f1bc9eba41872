package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuthSpec configures authentication methods in addition to client certificates, which are always enabled.
type AuthSpec struct {
	// oidc configures authentication by tokens of an OpenID Connect provider.
	// +optional
	OIDC *OIDCConfig `json:"oidc,omitempty"`

	// webhook configures authentication of tokens by a remote service.
	// +optional
	Webhook *AuthenticationWebhook `json:"webhook,omitempty"`

	// tokenAuthFile configures authentication by static tokens from a file.
	// +optional
	TokenAuthFile *TokenAuthFile `json:"tokenAuthFile,omitempty"`

	// serviceAccount configures authentication by service account tokens of all shards.
	// +optional
	ServiceAccount *ServiceAccountAuthentication `json:"serviceAccount,omitempty"`

	// dropGroups are removed from every user at the front proxy. Honoured on a FrontProxy only.
	// +optional
	DropGroups []string `json:"dropGroups,omitempty"`

	// passOnGroups are the only groups that the front proxy forwards. Honoured on a FrontProxy only.
	// +optional
	PassOnGroups []string `json:"passOnGroups,omitempty"`
}

// OIDCConfig describes an OpenID Connect provider.
type OIDCConfig struct {
	// issuerURL is the URL of the provider. Must match the issuer of its tokens.
	// +required
	IssuerURL string `json:"issuerURL"`

	// clientID is the client ID for which tokens must be issued.
	// +required
	ClientID string `json:"clientID"`

	// clientSecret is not used. Deprecated.
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`

	// usernameClaim is the token's claim that holds the user name.
	// +optional
	UsernameClaim string `json:"usernameClaim,omitempty"`

	// usernamePrefix is put before the user name.
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`

	// groupsClaim is the token's claim that holds the groups.
	// +optional
	GroupsClaim string `json:"groupsClaim,omitempty"`

	// groupsPrefix is put before every group.
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`

	// caFileRef names the CA that signed the provider's serving certificate. Without it, the public CAs that are
	// built into the server are trusted.
	// +optional
	CAFileRef *OIDCCAFileRef `json:"caFileRef,omitempty"`
}

// OIDCCAFileRef names a key of a Secret that holds CA certificates in PEM.
type OIDCCAFileRef struct {
	// name of the Secret.
	// +required
	Name string `json:"name"`

	// key inside the Secret. By default, it is ca.crt.
	// +optional
	Key string `json:"key,omitempty"`
}

// AuthenticationWebhook describes a service that serves TokenReviews.
type AuthenticationWebhook struct {
	// configSecretName names a Secret with a kubeconfig of the service, under the key kubeconfig.
	// +required
	ConfigSecretName string `json:"configSecretName"`

	// cacheAuthenticationTTL is how long a response is cached, for example 2m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheAuthenticationTTL *metav1.Duration `json:"cacheAuthenticationTTL,omitempty"`

	// version of the TokenReview API of the service.
	// +optional
	// +kubebuilder:validation:Enum=v1beta1;v1
	Version string `json:"version,omitempty"`
}

// TokenAuthFile names a key of a Secret that holds a file of static tokens.
type TokenAuthFile struct {
	// secretName names the Secret.
	// +required
	SecretName string `json:"secretName"`

	// key inside the Secret. By default, it is token.csv.
	// +optional
	Key string `json:"key,omitempty"`
}

// ServiceAccountAuthentication defines whether service account tokens are accepted.
type ServiceAccountAuthentication struct {
	// enabled specifies whether tokens signed by any shard of the installation are accepted.
	// +required
	Enabled bool `json:"enabled"`
}

// AuthorizationSpec configures an authorizer in addition to the built-in ones.
type AuthorizationSpec struct {
	// webhook configures authorization by a remote service.
	// +optional
	Webhook *AuthorizationWebhook `json:"webhook,omitempty"`
}

// AuthorizationWebhook describes a service that serves SubjectAccessReviews.
type AuthorizationWebhook struct {
	// configSecretName names a Secret with a kubeconfig of the service, under the key kubeconfig.
	// +optional
	ConfigSecretName string `json:"configSecretName,omitempty"`

	// allowPaths are URL paths that do not require authorization.
	// +optional
	AllowPaths []string `json:"allowPaths,omitempty"`

	// cacheAuthorizedTTL is how long an allowed response is cached, for example 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheAuthorizedTTL *metav1.Duration `json:"cacheAuthorizedTTL,omitempty"`

	// cacheUnauthorizedTTL is how long a denied response is cached, for example 30s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheUnauthorizedTTL *metav1.Duration `json:"cacheUnauthorizedTTL,omitempty"`

	// version of the SubjectAccessReview API of the service.
	// +optional
	Version string `json:"version,omitempty"`
}
