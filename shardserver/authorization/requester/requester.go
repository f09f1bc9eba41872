// Package requester remembers who authenticated, where impersonation replaces the user of a request afterwards. It
// exists because the stock handler chain keeps no trace of the former, and authorization needs both.
package requester

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

type contextKey struct{}

// holder is written once, by the authenticator, before anything reads it.
type holder struct{ user user.Info }

// With makes room in the request for its requester. It belongs in front of authentication.
func With(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), contextKey{}, &holder{})))
	})
}

// Recorded is an authenticator that notes whom it authenticated.
func Recorded(delegate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := delegate.AuthenticateRequest(req)
		// Only the first one counts: a token review asks the same authenticator about somebody else later on.
		if h, has := req.Context().Value(contextKey{}).(*holder); has && ok && err == nil && h.user == nil {
			h.user = response.User
		}
		return response, ok, err
	})
}

// From returns who authenticated, or false where a recorded authenticator had no part in it (loopback requests).
func From(ctx context.Context) (user.Info, bool) {
	h, ok := ctx.Value(contextKey{}).(*holder)
	if !ok || h.user == nil {
		return nil, false
	}
	return h.user, true
}
