// Package requester keeps the authenticated user of a request after impersonation has replaced the user. The stock
// handler chain does not retain it, and authorization needs both.
//
// It also keeps the stock impersonation filter from applying a decision to another request (uncached.go).
package requester

import (
	"context"
	"net/http"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

type contextKey struct{}

// holder is written once, by the authenticator, before it is read.
type holder struct{ user user.Info }

// With adds a holder for the requester to the request. It must run before authentication.
func With(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), contextKey{}, &holder{})))
	})
}

// Without returns a context without the requester, for a request that a component of the server makes as a user of its
// own choice. That is not impersonation.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*holder)(nil))
}

// NewAuthenticator returns an authenticator that records the user it authenticates. The user that it returns for a request
// that impersonates another is marked: see Unmark.
func NewAuthenticator(delegate authenticator.Request) authenticator.Request {
	var impersonations atomic.Uint64
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := delegate.AuthenticateRequest(req)
		// Only the first user counts: a token review calls the same authenticator for another user later on.
		if h, has := req.Context().Value(contextKey{}).(*holder); has && h != nil && ok && err == nil && h.user == nil {
			h.user = response.User
			if req.Header.Get(authenticationv1.ImpersonateUserHeader) != "" {
				response = &authenticator.Response{Audiences: response.Audiences, User: mark(response.User, impersonations.Add(1))}
			}
		}
		return response, ok, err
	})
}

// From returns the authenticated user, or false if no recorded authenticator was involved (loopback requests).
func From(ctx context.Context) (user.Info, bool) {
	h, ok := ctx.Value(contextKey{}).(*holder)
	if !ok || h == nil || h.user == nil {
		return nil, false
	}
	return h.user, true
}
