package virtualworkspaces

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/proxy/identity"
)

// reviewTimeout bounds a token review.
const reviewTimeout = 10 * time.Second

// serveMetrics serves users who may "get" the non-resource URL /metrics in root. These requests are not forwarded, so
// that the shard reviews the token of the client.
func (s *Server) serveMetrics(w http.ResponseWriter, req *http.Request) {
	u, authenticated := request.UserFrom(req.Context())
	if !authenticated {
		var err error
		if u, err = s.reviewToken(req.Context(), identity.BearerToken(req)); err != nil {
			klog.V(4).InfoS("Failed to authenticate the request", "err", err)
			s.error(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		req = req.WithContext(request.WithUser(req.Context(), u))
	}
	decision, reason, err := s.metricsAuthorizer.Authorize(req.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Path: metricsPath})
	switch {
	case err != nil:
		klog.ErrorS(err, "Failed to check access to /metrics")
		s.error(w, req, apierrors.NewInternalError(errors.New("access could not be checked")))
	case decision != authorizer.DecisionAllow:
		s.forbidden(w, req, reason)
	default:
		s.metricsHandler.ServeHTTP(w, req)
	}
}

// reviewToken returns the user of a bearer token.
func (s *Server) reviewToken(ctx context.Context, token string) (user.Info, error) {
	if token == "" {
		return nil, errors.New("there is no bearer token")
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := s.tokenReviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("reviewing a token: %w", err)
	case !review.Status.Authenticated:
		return nil, errors.New("the shard does not accept the token")
	}
	extra := make(map[string][]string, len(review.Status.User.Extra))
	for key, values := range review.Status.User.Extra {
		extra[key] = values
	}
	u := review.Status.User
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}, nil
}
