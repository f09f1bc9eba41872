package virtualworkspaces

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// reviewTimeout bounds a question to the shard about a token.
const reviewTimeout = 10 * time.Second

// serveMetrics lets those in who may "get" the non-resource URL /metrics in root. Unlike views, the page is not the shard's:
// its callers' tokens are reviewed, not passed on.
func (s *Server) serveMetrics(w http.ResponseWriter, req *http.Request) {
	u, known := request.UserFrom(req.Context())
	if !known {
		var err error
		if u, err = s.reviewed(req.Context(), req.Header.Get("Authorization")); err != nil {
			klog.V(4).InfoS("A client is not known", "err", err)
			s.fail(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		req = req.WithContext(request.WithUser(req.Context(), u))
	}
	decision, reason, err := s.scrapers.Authorize(req.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Path: metricsPath})
	switch {
	case err != nil:
		klog.ErrorS(err, "Cannot check access to /metrics")
		s.fail(w, req, apierrors.NewInternalError(errors.New("access could not be checked")))
	case decision != authorizer.DecisionAllow:
		s.forbidden(w, req, reason)
	default:
		s.page.ServeHTTP(w, req)
	}
}

// reviewed asks the shard whose the bearer token is.
func (s *Server) reviewed(ctx context.Context, authorization string) (user.Info, error) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, errors.New("there is no bearer token")
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := s.reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking the shard about a token: %w", err)
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
