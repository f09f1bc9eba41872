package authentication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Claims of a service account token with its logical cluster.
const (
	kubernetesClaim         = "kubernetes.io"
	clusterNameInKubernetes = "clusterName"
	legacyClusterNameClaim  = "kubernetes.io/serviceaccount/clusterName"
)

// NewTokenGenerator returns a generator of service account tokens that contain the logical cluster of the context. It
// returns an error if there is none. Tokens for Secrets, recognized by their claims, keep upstream's issuer; all others
// have the given issuer. The private key is one that upstream accepts (RSA, ECDSA or an opaque signer).
func NewTokenGenerator(issuer string, privateKey any) (serviceaccount.TokenGenerator, error) {
	bound, err := serviceaccount.JWTTokenGenerator(issuer, privateKey)
	if err != nil {
		return nil, fmt.Errorf("building the generator of service account tokens: %w", err)
	}
	legacy, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, privateKey)
	if err != nil {
		return nil, fmt.Errorf("building the generator of service account tokens in secrets: %w", err)
	}
	return tokenGenerator{bound: bound, legacy: legacy}, nil
}

type tokenGenerator struct{ bound, legacy serviceaccount.TokenGenerator }

func (g tokenGenerator) GenerateToken(ctx context.Context, claims *jwt.Claims, private any) (string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return "", errors.New("generating a service account token: no single logical cluster in the request")
	}
	extended, err := withClusterClaim(private, cluster)
	if err != nil {
		return "", fmt.Errorf("generating a service account token: %w", err)
	}
	if _, ok := extended[legacyClusterNameClaim]; ok {
		return g.legacy.GenerateToken(ctx, claims, extended)
	}
	return g.bound.GenerateToken(ctx, claims, extended)
}

// withClusterClaim adds the logical cluster next to the other private claims of the kind of token: inside
// "kubernetes.io" for bound tokens, beside "kubernetes.io/serviceaccount/..." for those of Secrets. The signer accepts
// maps of this exact type only; raw values keep numbers unchanged.
func withClusterClaim(private any, cluster logicalcluster.Name) (map[string]any, error) {
	claims, err := asMap(private)
	if err != nil {
		return nil, fmt.Errorf("reading the private claims: %w", err)
	}
	encoded, ok := claims[kubernetesClaim]
	if !ok {
		claims[legacyClusterNameClaim] = cluster.String()
		return claims, nil
	}
	inner, err := asMap(encoded)
	if err != nil {
		return nil, fmt.Errorf("reading the private claim %q: %w", kubernetesClaim, err)
	}
	inner[clusterNameInKubernetes] = cluster.String()
	claims[kubernetesClaim] = inner
	return claims, nil
}

func asMap(value any) (map[string]any, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(encoded, &raw); err != nil {
		return nil, err
	}
	fields := make(map[string]any, len(raw)+1)
	for name, value := range raw {
		fields[name] = value
	}
	return fields, nil
}

// newServiceAccountAuthenticators builds the authenticators of bound tokens and, with a writer of Secrets, of tokens in
// Secrets.
func newServiceAccountAuthenticators(stock kubeauthenticator.Config, oldestKeys int32, registry *storage.Registry) ([]authenticator.Token, error) {
	var tokens []authenticator.Token
	getter, keys := newTokenGetter(registry), newClusterKeys(stock.ServiceAccountPublicKeysGetter, oldestKeys, registry)
	if stock.SecretsWriter != nil {
		validator, err := serviceaccount.NewLegacyValidator(true, getter, stock.SecretsWriter)
		if err != nil {
			return nil, fmt.Errorf("building the validator of service account tokens in secrets: %w", err)
		}
		issuers := []string{serviceaccount.LegacyIssuer}
		tokens = append(tokens, withTokenCluster(
			serviceaccount.JWTTokenAuthenticator(issuers, keys.withoutExpiry(), stock.APIAudiences, validator)))
	}
	if issuers := stock.ServiceAccountIssuers; len(issuers) > 0 {
		tokens = append(tokens, withTokenCluster(
			serviceaccount.JWTTokenAuthenticator(issuers, keys, stock.APIAudiences, serviceaccount.NewValidator(getter))))
	}
	return tokens, nil
}

// withTokenCluster makes the stock authenticator look up the service account of a token in the logical cluster that the
// token has, regardless of the logical cluster of the request. The claim is read before the signature is verified,
// but only used for the keys that may have signed the token, and for that lookup, which the stock authenticator makes
// after it has verified the signature that covers the claim.
func withTokenCluster(stock authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		cluster, ok := serviceaccounttokens.ClusterClaim(token)
		if !ok {
			return nil, false, nil
		}
		response, ok, err := stock.AuthenticateToken(logicalcluster.With(ctx, cluster), token)
		if err != nil || !ok {
			return nil, false, err
		}
		response.User = withClusterName(response.User, cluster)
		return response, true, nil
	})
}

func withClusterName(u user.Info, cluster logicalcluster.Name) user.Info {
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[authorization.ClusterNameExtraKey] = []string{cluster.String()}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// tokenGetter reads the objects that a token is bound to, in the logical cluster of the context. An object that the
// watch cache does not have is read again consistently, so that a new token works immediately.
type tokenGetter struct {
	accounts *storage.Reader[*core.ServiceAccount]
	secrets  *storage.Reader[*core.Secret]
}

var _ serviceaccount.ServiceAccountTokenGetter = tokenGetter{}

func newTokenGetter(registry *storage.Registry) tokenGetter {
	return tokenGetter{
		accounts: storage.NewReader[*core.ServiceAccount](registry, schema.GroupResource{Resource: "serviceaccounts"}),
		secrets:  storage.NewReader[*core.Secret](registry, schema.GroupResource{Resource: "secrets"}),
	}
}

func (g tokenGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := getFresh(ctx, g.accounts, namespace, name)
	if err != nil {
		return nil, err
	}
	converted := &corev1.ServiceAccount{ObjectMeta: account.ObjectMeta}
	for _, secret := range account.Secrets {
		converted.Secrets = append(converted.Secrets, corev1.ObjectReference{Namespace: secret.Namespace, Name: secret.Name})
	}
	return converted, nil
}

func (g tokenGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := getFresh(ctx, g.secrets, namespace, name)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{ObjectMeta: secret.ObjectMeta, Data: secret.Data, Type: corev1.SecretType(secret.Type)}, nil
}

// GetPod always fails: logical clusters have no pods that a token could be bound to.
func (g tokenGetter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// GetNode always fails: logical clusters have no nodes.
func (g tokenGetter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// GetValidatingWebhookConfiguration always fails: tokens for webhooks are not issued.
func (g tokenGetter) GetValidatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("validatingwebhookconfigurations"), name)
}

// GetMutatingWebhookConfiguration always fails: tokens for webhooks are not issued.
func (g tokenGetter) GetMutatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), name)
}

func getFresh[T runtime.Object](ctx context.Context, reader *storage.Reader[T], namespace, name string) (T, error) {
	obj, err := reader.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return reader.GetLatest(ctx, namespace, name)
	}
	return obj, err
}
