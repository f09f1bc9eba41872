// Package identity says who sends a request, and how shards are told. It authenticates at the proxy's edge, filters
// groups, and builds the identity headers out of the authenticated user.
//
// What a client sends never becomes part of an identity header. Routing and forwarding live elsewhere.
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
)

// Authenticator authenticates requests where that is to be tried at all.
type Authenticator struct {
	request authenticator.Request // nil when nothing is configured
	// tokens says that some kind of token is checked here. Then every request must authenticate.
	tokens    bool
	audiences authenticator.Audiences
	groups    GroupFilter
}

// NewAuthenticator builds the chain out of the stock configuration: request header and client certificate first,
// then service account tokens with their logical cluster, then all other tokens. The stock service account
// authenticators are replaced, because they know no logical clusters. ctx ends background work (OIDC keys).
func NewAuthenticator(ctx context.Context, config kubeauthenticator.Config, lookup Lookup, groups GroupFilter) (*Authenticator, error) {
	others := config
	others.RequestHeaderConfig = nil
	others.ClientCAContentProvider = nil
	others.ServiceAccountPublicKeysGetter = nil
	if config.AuthenticationConfig != nil && len(config.AuthenticationConfig.JWT) == 0 {
		others.AuthenticationConfig = nil // else it counts as a token authenticator, one that knows nobody
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
		chain = append(chain, rememberChains(byCertificate, ca.VerifyOptions))
	}
	if config.ServiceAccountPublicKeysGetter != nil {
		tokens := tokencache.New(ServiceAccounts(config.ServiceAccountIssuers, config.ServiceAccountPublicKeysGetter, config.APIAudiences, lookup),
			true, config.TokenSuccessCacheTTL, config.TokenFailureCacheTTL)
		chain = append(chain, group.NewAuthenticatedGroupAdder(union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))))
		a.tokens = true
	}
	byToken, _, _, _, err := others.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("authentication by token: %w", err)
	}
	if byToken != nil {
		chain = append(chain, byToken)
		a.tokens = true
	}
	if len(chain) > 0 {
		a.request = union.New(chain...)
	}
	return a, nil
}

// Authenticate returns the user, with the groups that pass the filter. Without a user and without an error the
// request goes on without an identity: it brought no certificate, and nothing else is checked here. A token that was
// consumed is removed from the request's headers.
//
// Tokens, if given, are those that count for this request only: of issuers of the workspace that it goes to. They are
// tried last, and then every request must authenticate.
func (a *Authenticator) Authenticate(req *http.Request, tokens authenticator.Token) (user.Info, error) {
	certificate := req.TLS != nil && len(req.TLS.PeerCertificates) > 0
	if !certificate && !a.tokens && tokens == nil {
		return nil, nil
	}
	request := a.request
	if tokens != nil {
		own := union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
		if request == nil {
			request = own
		} else {
			request = union.New(request, own)
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
		return nil, fmt.Errorf("no credentials that are known here")
	}
	u := response.User
	if !survivesHeader(u.GetName()) {
		return nil, fmt.Errorf("the user name %q cannot be told to a shard: it has white space at an end, or control characters", u.GetName())
	}
	groups := slices.DeleteFunc(slices.Clone(u.GetGroups()), func(group string) bool { return !survivesHeader(group) })
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: a.groups.Apply(groups), Extra: surviving(u.GetExtra())}, nil
}

// survivesHeader tells whether a value arrives as it was sent. Receivers trim white space from the ends of header
// values, which would turn one user or group into another.
func survivesHeader(value string) bool {
	return strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}

func surviving(extra map[string][]string) map[string][]string {
	if len(extra) == 0 {
		return extra
	}
	kept := make(map[string][]string, len(extra))
	for key, values := range extra {
		if values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return !survivesHeader(value) }); len(values) > 0 {
			kept[key] = values
		}
	}
	return kept
}
