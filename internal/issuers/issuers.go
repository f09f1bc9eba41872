// Package issuers accepts the tokens of issuers that a workspace type brings for its workspaces
// (WorkspaceAuthenticationConfiguration). The front proxy and the shards share it: each finds the issuers of a logical
// cluster in its own way and asks Authenticators about a token.
//
// Verification is upstream's. Added is what tenants as authors of a configuration make necessary: their users count in
// the logical cluster of the request alone; what is fetched from their servers is bounded; and an authenticator belongs
// to the content of a configuration, not to a workspace (walls W2, W5), so that any number of workspaces share it.
// Nothing runs in the background: keys are fetched when a token asks for them.
//
// It must know neither shards nor proxies, and it decides nothing about permissions.
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

// kept bounds how many authenticators are remembered. One that is forgotten costs its next user two requests to the
// issuer.
const kept = 1024

// Authenticators verifies tokens of any issuers. It is safe for concurrent use.
type Authenticators struct {
	ctx context.Context
	// required are audiences of which every token must have one, besides what its issuer's configuration demands.
	required authenticator.Audiences
	// implied are the audiences of who asks without saying any.
	implied authenticator.Audiences

	mu    sync.Mutex // makes sure that one content is built once
	known *lru.Cache // of *entry by [sha256.Size]byte
}

// entry is the authenticator of one content, or why there is none.
type entry struct {
	token authenticator.Token
	err   error
}

// prepareMetrics is for the whole process, and is not repeated: what counts reads the bounds without a lock.
var prepareMetrics = sync.OnceFunc(func() {
	oidc.RegisterMetrics()
	// The metric is by issuer, of which tenants can make any number.
	metrics.SetLabelAllowList(map[string]string{"apiserver_authentication_jwt_authenticator_latency_seconds,jwt_issuer_hash": ""})
})

// New returns authenticators whose fetches end with the context. Required audiences come from a flag, and may be none;
// implied ones are those of the server.
func New(ctx context.Context, required, implied authenticator.Audiences) *Authenticators {
	prepareMetrics()
	return &Authenticators{ctx: ctx, required: required, implied: implied, known: lru.New(kept)}
}

// Authenticate tries the issuers of a logical cluster that the token names. The user it returns counts in that logical
// cluster alone. Without an error and without a user, the token is none of these issuers'.
func (a *Authenticators) Authenticate(ctx context.Context, cluster logicalcluster.Name, issuers []tenancyv1alpha1.JWTAuthenticator, token string) (*authenticator.Response, bool, error) {
	said, ok := peek(token)
	if !ok {
		return nil, false, nil
	}
	var errs []error
	for i := range issuers {
		if issuers[i].Issuer.URL != said.Issuer {
			continue
		}
		response, ok, err := a.one(ctx, cluster, &issuers[i], token, said)
		if ok {
			return response, true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

func (a *Authenticators) one(ctx context.Context, cluster logicalcluster.Name, issuer *tenancyv1alpha1.JWTAuthenticator, token string, said claims) (*authenticator.Response, bool, error) {
	if len(said.ClaimNames) > 0 {
		// Upstream would fetch them from any server that the token names, and remember each of these for good.
		return nil, false, errors.New("a token with distributed claims is not accepted from an issuer of a workspace")
	}
	verify, err := a.authenticator(issuer)
	if err != nil {
		return nil, false, fmt.Errorf("issuer %q: %w", issuer.Issuer.URL, err)
	}
	response, ok, err := authenticator.WrapAudienceAgnosticToken(a.implied, verify).AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	// From here on what the token says is true.
	if len(a.required) > 0 && !slices.ContainsFunc(said.Audiences, a.required.Has) {
		return nil, false, fmt.Errorf("issuer %q: the token is for %q, not for one of %q", issuer.Issuer.URL, said.Audiences, a.required)
	}
	if response.User, err = within(response.User, cluster); err != nil {
		return nil, false, fmt.Errorf("issuer %q: %w", issuer.Issuer.URL, err)
	}
	return response, true, nil
}

// authenticator returns that of the content, building it if it is not known.
func (a *Authenticators) authenticator(issuer *tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
	content, err := json.Marshal(issuer)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(content)
	if found, ok := a.known.Get(key); ok {
		return found.(*entry).token, found.(*entry).err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := a.known.Get(key); ok {
		return found.(*entry).token, found.(*entry).err
	}
	built := &entry{}
	built.token, built.err = a.build(issuer)
	a.known.Add(key, built)
	return built.token, built.err
}

func (a *Authenticators) build(issuer *tenancyv1alpha1.JWTAuthenticator) (authenticator.Token, error) {
	client, err := newClient(issuer.Issuer.CertificateAuthority)
	if err != nil {
		return nil, err
	}
	converted := convert(issuer)
	keys := &keySet{ctx: a.ctx, client: client, issuer: converted.Issuer.URL, discovery: converted.Issuer.DiscoveryURL}
	converted.Issuer.DiscoveryURL = "" // the key set looks there
	return oidc.New(a.ctx, oidc.Options{
		JWTAuthenticator:     converted,
		KeySet:               keys,
		Client:               client,
		Compiler:             compiler(),
		SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
	})
}
