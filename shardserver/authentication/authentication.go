// Package authentication authenticates requests: client certificates, identity headers of the front proxy, tokens of
// files, administrators and service accounts, OpenID Connect and webhooks. It uses upstream's authenticators and adds
// the logical cluster of service accounts and limits on the groups in identity headers.
//
// It must not decide what an identity may do (package authorization).
package authentication

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// Config configures the authenticator.
type Config struct {
	// Stock is the configuration of the upstream flags (options.BuiltInAuthenticationOptions.ToAuthenticationConfig).
	// Its ServiceAccountTokenGetter is not used; its SecretsWriter, which must send writes to the logical cluster of
	// their context, enables tokens of Secrets (kubernetes.io/service-account-token). Bootstrap tokens are refused.
	Stock kubeauthenticator.Config
	// Registry reads service accounts and secrets. It is required for service account tokens.
	Registry *storage.Registry
	// ShardKeys are the public keys of all shards. A token of a logical cluster of another shard is sent to that shard only if
	// one of them signed it; tokens of logical clusters of this shard must be signed by a key of Stock, or of a shard that had the
	// logical cluster before. They are required for service account tokens.
	ShardKeys serviceaccount.PublicKeysGetter
	// OldestKeys is the lowest generation of the keys of Stock: earlier ones are retired, also those of shards that had a logical cluster before.
	OldestKeys int32
	// Proxy has the address and the CA of the front proxy, through which such tokens are reviewed. Its credentials are not
	// used. If it is nil, tokens of logical clusters of other shards are not authenticated.
	Proxy *rest.Config
	// Issuers verifies tokens of the issuers of workspace types (feature gate WorkspaceAuthentication). It may be nil.
	Issuers *issuers.Authenticators
	// Types finds workspace types by path. It is required with Issuers.
	Types *workspacetype.Index
	// AdminTokens maps the tokens of admin.kubeconfig to users.
	AdminTokens map[string]*user.DefaultInfo
}

// New builds the authenticator. The context ends its background work (fetching the keys of OpenID Connect issuers).
//
// The result of the stock token authenticators does not depend on the logical cluster of the request, so the stock
// token cache in front of them may be keyed by the token only. The result of workspace issuers does, so they are not
// cached.
func New(ctx context.Context, config Config) (authenticator.Request, error) {
	stock := config.Stock
	if stock.BootstrapToken {
		return nil, errors.New("authentication: bootstrap tokens are not supported")
	}
	var requests []authenticator.Request
	if stock.RequestHeaderConfig != nil {
		requests = append(requests, authenticator.WrapAudienceAgnosticRequest(stock.APIAudiences, newRequestHeaderAuthenticator(stock.RequestHeaderConfig)))
	}
	if stock.ClientCAContentProvider != nil {
		certificates := authenticator.Request(x509.NewDynamic(stock.ClientCAContentProvider.VerifyOptions, x509.CommonNameUserConversion))
		if stock.RequestHeaderConfig != nil {
			certificates = ignoreProxyCertificates(certificates, stock.RequestHeaderConfig)
		}
		requests = append(requests, certificates)
	}
	tokens, err := newTokenAuthenticator(config)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		requests = append(requests, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	others, err := newUpstreamAuthenticator(ctx, stock)
	if err != nil {
		return nil, err
	}
	if others != nil {
		requests = append(requests, others)
	}
	if config.Issuers != nil {
		if config.Registry == nil {
			return nil, errors.New("authentication: issuers of workspaces need a storage registry")
		}
		tokens := newWorkspaceTokenAuthenticator(config.Registry, config.Types, config.Issuers)
		requests = append(requests, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	return requester.NewAuthenticator(withAnonymous(stock.Anonymous, requests)), nil
}

// newTokenAuthenticator returns the authenticator of admin and service account tokens, or nil if there are none.
func newTokenAuthenticator(config Config) (authenticator.Token, error) {
	var tokens []authenticator.Token
	if len(config.AdminTokens) > 0 {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(config.Stock.APIAudiences, tokenfile.New(config.AdminTokens)))
	}
	if config.Stock.ServiceAccountPublicKeysGetter != nil {
		if config.Registry == nil {
			return nil, errors.New("authentication: service account tokens need a storage registry")
		}
		accounts, err := newServiceAccountAuthenticators(config.Stock, config.OldestKeys, config.Registry)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, accounts...)
		tokens = append(tokens, newRemoteServiceAccountAuthenticator(config.Stock, config.ShardKeys, config.Registry, config.Proxy))
	}
	if len(tokens) == 0 {
		return nil, nil
	}
	joined := tokenunion.New(tokens...)
	if config.Stock.TokenSuccessCacheTTL > 0 || config.Stock.TokenFailureCacheTTL > 0 {
		joined = tokencache.New(joined, true, config.Stock.TokenSuccessCacheTTL, config.Stock.TokenFailureCacheTTL)
	}
	return joined, nil
}

// newUpstreamAuthenticator builds the authenticators of token file, OpenID Connect and webhook.
func newUpstreamAuthenticator(ctx context.Context, stock kubeauthenticator.Config) (authenticator.Request, error) {
	stock.RequestHeaderConfig = nil
	stock.ClientCAContentProvider = nil
	stock.ServiceAccountPublicKeysGetter = nil
	stock.Anonymous = apiserver.AnonymousAuthConfig{}
	request, _, _, _, err := stock.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("building the upstream authenticators: %w", err)
	}
	return request, nil
}

// withAnonymous completes the chain like upstream: authenticated users are in system:authenticated; requests without
// credentials may be anonymous; requests with invalid credentials are refused.
func withAnonymous(config apiserver.AnonymousAuthConfig, requests []authenticator.Request) authenticator.Request {
	authenticated := group.NewAuthenticatedGroupAdder(union.New(requests...))
	if !config.Enabled {
		return authenticated
	}
	return union.NewFailOnError(authenticated, anonymous.NewAuthenticator(config.Conditions))
}
