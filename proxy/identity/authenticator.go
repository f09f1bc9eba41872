// Package identity authenticates requests, filters the groups of users, and writes identity headers for shards from
// the authenticated user. No part of an identity header comes from a header of the client. Routing and forwarding do
// not belong here.
package identity

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
)

// Authenticator authenticates requests.
type Authenticator struct {
	request authenticator.Request // nil if nothing is configured
	// required is set if any kind of token is verified here. Then all requests must authenticate.
	required  bool
	audiences authenticator.Audiences
	groups    GroupFilter
}

// NewAuthenticator returns the chain for the stock configuration: request header, client certificate, service account
// tokens, other tokens. Service accounts have an authenticator that supports logical clusters in place of the stock
// one. ctx ends background work (OIDC keys).
func NewAuthenticator(ctx context.Context, config kubeauthenticator.Config, lookup serviceaccounttokens.Lookup, groups GroupFilter) (*Authenticator, error) {
	others := config
	others.RequestHeaderConfig = nil
	others.ClientCAContentProvider = nil
	others.ServiceAccountPublicKeysGetter = nil
	if config.AuthenticationConfig != nil && len(config.AuthenticationConfig.JWT) == 0 {
		others.AuthenticationConfig = nil // otherwise it adds a token authenticator without issuers
	}

	a := &Authenticator{groups: groups, audiences: config.APIAudiences}
	var chain []authenticator.Request
	if config.RequestHeaderConfig != nil {
		byHeader, _, _, _, err := kubeauthenticator.Config{RequestHeaderConfig: config.RequestHeaderConfig, APIAudiences: config.APIAudiences}.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("authentication by request header: %w", err)
		}
		chain = append(chain, byHeader)
	}
	if ca := config.ClientCAContentProvider; ca != nil {
		byCertificate, _, _, _, err := kubeauthenticator.Config{ClientCAContentProvider: ca, APIAudiences: config.APIAudiences}.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("authentication by certificate: %w", err)
		}
		chain = append(chain, newCertificateCache(byCertificate, ca.VerifyOptions))
	}
	if config.ServiceAccountPublicKeysGetter != nil {
		tokens := tokencache.New(serviceaccounttokens.NewAuthenticator(config.ServiceAccountIssuers, config.ServiceAccountPublicKeysGetter, config.APIAudiences, lookup),
			true, config.TokenSuccessCacheTTL, config.TokenFailureCacheTTL)
		chain = append(chain, group.NewAuthenticatedGroupAdder(tokenRequests(tokens)))
		a.required = true
	}
	byToken, _, _, _, err := others.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("authentication by token: %w", err)
	}
	if byToken != nil {
		chain = append(chain, byToken)
		a.required = true
	}
	if len(chain) > 0 {
		a.request = union.New(chain...)
	}
	return a, nil
}

// Authenticate returns the user, with the groups that pass the filter. It returns neither user nor error for a request
// without a certificate if no tokens are verified here: that request is forwarded without an identity. A token that
// authenticates is removed from the headers of the request.
//
// workspaceTokens, unless nil, authenticates tokens of the issuers of the request's workspace. It is tried last, and
// makes authentication mandatory.
func (a *Authenticator) Authenticate(req *http.Request, workspaceTokens authenticator.Token) (user.Info, error) {
	hasCertificate := req.TLS != nil && len(req.TLS.PeerCertificates) > 0
	if !hasCertificate && !a.required && workspaceTokens == nil {
		return nil, nil
	}
	request := a.request
	if workspaceTokens != nil {
		byWorkspaceToken := tokenRequests(workspaceTokens)
		if request == nil {
			request = byWorkspaceToken
		} else {
			request = union.New(request, byWorkspaceToken)
		}
	}
	if request == nil {
		return nil, fmt.Errorf("a client certificate was presented, but no --client-ca-file is configured")
	}
	if len(a.audiences) > 0 {
		req = req.WithContext(authenticator.WithAudiences(req.Context(), a.audiences))
	}
	response, ok, err := request.AuthenticateRequest(req)
	if err != nil {
		return nil, err
	}
	if !ok || response.User.GetName() == "" {
		return nil, fmt.Errorf("no valid credentials")
	}
	u := response.User
	if !isHeaderValue(u.GetName()) {
		return nil, fmt.Errorf("the user name %q cannot be sent in a header: it has surrounding white space or control characters", u.GetName())
	}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: a.groups.Apply(headerValues(u.GetGroups())), Extra: headerExtra(u.GetExtra())}, nil
}

// tokenRequests authenticates requests by their bearer token, in a header or in a WebSocket protocol.
func tokenRequests(tokens authenticator.Token) authenticator.Request {
	return union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
}

// isHeaderValue reports whether a header transports the value unchanged. Receivers trim surrounding white space,
// which could turn one user or group into another.
func isHeaderValue(value string) bool {
	return strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

// headerValues returns the values that a header transports unchanged.
func headerValues(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(value string) bool { return !isHeaderValue(value) })
}

func headerExtra(extra map[string][]string) map[string][]string {
	out := make(map[string][]string, len(extra))
	for key, values := range extra {
		if values = headerValues(values); len(values) > 0 {
			out[key] = values
		}
	}
	return out
}
