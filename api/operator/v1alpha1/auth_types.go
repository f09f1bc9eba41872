package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuthSpec configures authentication methods in addition to client certificates, which are always accepted.
type AuthSpec struct {
	// oidc accepts tokens of an OpenID Connect provider. If unset, none are accepted.
	// +optional
	OIDC *OIDCConfig `json:"oidc,omitempty"`

	// webhook asks a remote service about tokens that no other method accepts. If unset, no service is asked.
	// +optional
	Webhook *AuthenticationWebhook `json:"webhook,omitempty"`

	// tokenAuthFile accepts static tokens from a file. If unset, none are accepted.
	// +optional
	TokenAuthFile *TokenAuthFile `json:"tokenAuthFile,omitempty"`

	// serviceAccount accepts service account tokens that any shard of the installation has issued.
	// +optional
	ServiceAccount *ServiceAccountAuthentication `json:"serviceAccount,omitempty"`

	// dropGroups are groups that a FrontProxy removes from every user, before passOnGroups applies; an asterisk at
	// the end matches any suffix. A list replaces the default: system:masters and the internal groups of an
	// installation. Others ignore it, as their condition SpecHonored says.
	// +optional
	DropGroups []string `json:"dropGroups,omitempty"`

	// passOnGroups are the only groups that a FrontProxy forwards to shards; an asterisk at the end matches any
	// suffix. If unset or empty, it forwards all that dropGroups does not match. Others than FrontProxies ignore it;
	// their condition SpecHonored says so.
	// +optional
	PassOnGroups []string `json:"passOnGroups,omitempty"`
}

// OIDCConfig describes an OpenID Connect provider.
type OIDCConfig struct {
	// issuerURL is the https URL of the provider. It must be equal to the claim iss of its tokens.
	// +required
	IssuerURL string `json:"issuerURL"`

	// clientID is the client for which tokens must be issued: their claim aud has to contain it.
	// +required
	ClientID string `json:"clientID"`

	// clientSecret has no effect. Deprecated: remove it.
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`

	// usernameClaim is the claim with the name of the user. Defaults to sub.
	// +optional
	UsernameClaim string `json:"usernameClaim,omitempty"`

	// usernamePrefix is put before the name of the user. Defaults to issuerURL and "#", except for the claim email,
	// which gets no prefix. "-" means no prefix.
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`

	// groupsClaim is the claim with the groups of the user, a string or a list of strings. If unset, users of the
	// provider have no groups of their own.
	// +optional
	GroupsClaim string `json:"groupsClaim,omitempty"`

	// groupsPrefix is put before each group. If unset, groups have no prefix.
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`

	// caFileRef names a key of a Secret with the CA certificates by which the serving certificate of the provider is
	// verified. If unset, the public CAs that are built into the server are trusted.
	// +optional
	CAFileRef *OIDCCAFileRef `json:"caFileRef,omitempty"`
}

// OIDCCAFileRef names a key of a Secret with CA certificates in PEM.
type OIDCCAFileRef struct {
	// name is the name of a Secret in the same namespace.
	// +required
	Name string `json:"name"`

	// key is the key of the Secret whose value has the certificates. Defaults to ca.crt.
	// +optional
	Key string `json:"key,omitempty"`
}

// AuthenticationWebhook describes a service that serves TokenReviews.
type AuthenticationWebhook struct {
	// configSecretName names a Secret in the same namespace. Its key kubeconfig has the address of the service and
	// the credentials for it.
	// +required
	ConfigSecretName string `json:"configSecretName"`

	// cacheAuthenticationTTL is how long a response is cached, for example 30s. Defaults to 2m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheAuthenticationTTL *metav1.Duration `json:"cacheAuthenticationTTL,omitempty"`

	// version is the version of TokenReview of authentication.k8s.io that the service receives and returns. Defaults
	// to v1beta1.
	// +optional
	// +kubebuilder:validation:Enum=v1beta1;v1
	Version string `json:"version,omitempty"`
}

// TokenAuthFile names a key of a Secret with static tokens.
type TokenAuthFile struct {
	// secretName is the name of a Secret in the same namespace.
	// +required
	SecretName string `json:"secretName"`

	// key is the key of the Secret whose value has the tokens in CSV: token, user name, UID and, optionally, groups.
	// Defaults to token.csv.
	// +optional
	Key string `json:"key,omitempty"`
}

// ServiceAccountAuthentication defines whether service account tokens are accepted.
type ServiceAccountAuthentication struct {
	// enabled specifies whether tokens are accepted that any shard of the installation has signed.
	// +required
	Enabled bool `json:"enabled"`
}

// AuthorizationSpec configures an authorizer in addition to the built-in ones.
type AuthorizationSpec struct {
	// webhook asks a remote service about requests that no built-in authorizer decides. If unset, no service is
	// asked.
	// +optional
	Webhook *AuthorizationWebhook `json:"webhook,omitempty"`
}

// AuthorizationWebhook describes a service that serves SubjectAccessReviews.
type AuthorizationWebhook struct {
	// configSecretName names a Secret in the same namespace. Its key kubeconfig has the address of the service and
	// the credentials for it. If unset, no service is asked, and only allowPaths has an effect; the condition
	// SpecHonored names the other fields.
	// +optional
	ConfigSecretName string `json:"configSecretName,omitempty"`

	// allowPaths are URL paths that need no authorization. They replace the default: /healthz, /readyz and /livez.
	// +optional
	AllowPaths []string `json:"allowPaths,omitempty"`

	// cacheAuthorizedTTL is how long a response that allows a request is cached, for example 1m. Defaults to 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheAuthorizedTTL *metav1.Duration `json:"cacheAuthorizedTTL,omitempty"`

	// cacheUnauthorizedTTL is how long a response that does not allow a request is cached, for example 10s. Defaults
	// to 30s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	CacheUnauthorizedTTL *metav1.Duration `json:"cacheUnauthorizedTTL,omitempty"`

	// version is the version of SubjectAccessReview of authorization.k8s.io that the service receives and returns: v1
	// or v1beta1. Defaults to v1beta1.
	// +optional
	Version string `json:"version,omitempty"`
}
