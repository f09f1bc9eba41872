// Package issuers authenticates tokens of the issuers that a workspace type configures for its workspaces
// (WorkspaceAuthenticationConfiguration). The front proxy and the shards share it: each resolves the issuers of a
// logical cluster in its own way and calls Authenticators with a token.
//
// Upstream verifies the tokens. The package adds what is needed because tenants write the configurations: users are
// scoped to the logical cluster of the request; requests to the issuers' servers are limited; and authenticators are
// cached by the content of a configuration, not by workspace, so that any number of workspaces share one. There is no
// background work: keys are fetched when a token needs them.
//
// It must depend neither on shards nor on proxies, and must not authorize anything.
package issuers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/lru"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// maxMatchingIssuers bounds the issuers that one token is verified with: every client can send tokens, and a tenant can configure one
// issuer any number of times.
const maxMatchingIssuers = 64

// maxAuthenticators bounds the number of cached authenticators. After an eviction, the next token causes two requests to the issuer.
const maxAuthenticators = 1024

// Authenticators verifies tokens of any issuers. It is safe for concurrent use.
type Authenticators struct {
	ctx context.Context
	// requiredAudiences are audiences of which every token must have one, in addition to those that the issuer's configuration
	// requires.
	requiredAudiences authenticator.Audiences
	// apiAudiences are the audiences of requests without audiences.
	apiAudiences authenticator.Audiences

	mu    sync.Mutex // ensures that one content is built once
	cache *lru.Cache // of *entry by [sha256.Size]byte
}

// entry is the authenticator of one content, or the error of building it.
type entry struct {
	token authenticator.Token
	err   error
}

// prepareMetrics applies to the whole process and runs once, because metrics read the label allow list without a lock.
var prepareMetrics = sync.OnceFunc(func() {
	oidc.RegisterMetrics()
	// The metric has the issuer as a label, of which tenants can create any number.
	metrics.SetLabelAllowList(map[string]string{"apiserver_authentication_jwt_authenticator_latency_seconds,jwt_issuer_hash": ""})
})

// New returns authenticators whose requests end with the context. Required audiences are those of a flag, possibly
// none; implied ones are those of the server.
func New(ctx context.Context, required, apiAudiences authenticator.Audiences) *Authenticators {
	prepareMetrics()
	return &Authenticators{ctx: ctx, requiredAudiences: required, apiAudiences: apiAudiences, cache: lru.New(maxAuthenticators)}
}

// Authenticate tries the issuers of a logical cluster that match the token. The returned user is scoped to that logical
// cluster. It returns no user and no error if the token is not from any of these issuers.
func (a *Authenticators) Authenticate(ctx context.Context, cluster logicalcluster.Name, issuers []tenancyv1alpha1.JWTAuthenticator, token string) (*authenticator.Response, bool, error) {
	tokenClaims, ok := parseUnverified(token)
	if !ok {
		return nil, false, nil
	}
	var errs []error
	matching := 0
	for i := range issuers {
		if issuers[i].Issuer.URL != tokenClaims.Issuer {
			continue
		}
		if matching++; matching > maxMatchingIssuers {
			errs = append(errs, fmt.Errorf("issuer %q: only the first %d of its configurations are used", tokenClaims.Issuer, maxMatchingIssuers))
			break
		}
		response, ok, err := a.authenticateWith(ctx, cluster, &issuers[i], token, tokenClaims)
		if ok {
			return response, true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

func (a *Authenticators) authenticateWith(ctx context.Context, cluster logicalcluster.Name, issuer *tenancyv1alpha1.JWTAuthenticator, token string, tokenClaims claims) (*authenticator.Response, bool, error) {
	if len(tokenClaims.ClaimNames) > 0 {
		// Upstream would fetch distributed claims from any server that the token names, and cache each of these servers
		// without limit.
		return nil, false, errors.New("a token with distributed claims is not accepted from an issuer of a workspace")
	}
	verify, err := a.authenticator(issuer)
	if err != nil {
		return nil, false, fmt.Errorf("issuer %q: %w", issuer.Issuer.URL, err)
	}
	response, ok, err := authenticator.WrapAudienceAgnosticToken(a.apiAudiences, verify).AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	// The signature is verified, so the claims can be trusted from here on.
	if len(a.requiredAudiences) > 0 && !slices.ContainsFunc(tokenClaims.Audiences, a.requiredAudiences.Has) {
		return nil, false, fmt.Errorf("issuer %q: the token is for %q, not for one of %q", issuer.Issuer.URL, tokenClaims.Audiences, a.requiredAudiences)
	}
	if response.User, err = scopeUser(response.User, cluster); err != nil {
		return nil, false, fmt.Errorf("issuer %q: %w", issuer.Issuer.URL, err)
	}
	return response, true, nil
}

// authenticator returns the authenticator of the content, and builds it if it is not cached.
func (a *Authenticators) authenticator(issuer *tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
	content, err := json.Marshal(issuer)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(content)
	if found, ok := a.cache.Get(key); ok {
		return found.(*entry).token, found.(*entry).err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := a.cache.Get(key); ok {
		return found.(*entry).token, found.(*entry).err
	}
	built := &entry{}
	built.token, built.err = a.build(issuer)
	a.cache.Add(key, built)
	return built.token, built.err
}

func (a *Authenticators) build(issuer *tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
	client, err := newClient(issuer.Issuer.CertificateAuthority)
	if err != nil {
		return nil, err
	}
	converted := convert(issuer)
	keys := &keySet{ctx: a.ctx, client: client, issuer: converted.Issuer.URL, discovery: converted.Issuer.DiscoveryURL}
	converted.Issuer.DiscoveryURL = "" // the key set performs the discovery
	return oidc.New(a.ctx, oidc.Options{
		JWTAuthenticator:     converted,
		KeySet:               keys,
		Client:               client,
		Compiler:             compiler(),
		SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
	})
}
