package authorization

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// DeepReviewHeader requests that a SubjectAccessReview skips required groups, workspace content and maximal permission
// policies. It is honoured for privileged groups only.
const DeepReviewHeader = "X-Kcp-Internal-Deep-SubjectAccessReview"

type deepKey struct{}

// WithDeep makes decisions in the context skip required groups and workspace content. It is for checks that the server
// makes itself about a logical cluster of any shard, which the user need not be able to access.
func WithDeep(ctx context.Context) context.Context { return context.WithValue(ctx, deepKey{}, true) }

func isDeep(ctx context.Context) bool {
	deep, _ := ctx.Value(deepKey{}).(bool)
	return deep
}

// WithDeepReview marks SubjectAccessReviews that carry the header, if the user is privileged. It must run after
// authorization: the mark changes the result of the review, not whether it may be created.
func WithDeepReview(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if asked, err := strconv.ParseBool(req.Header.Get(DeepReviewHeader)); err == nil && asked && mayReviewDeep(req.Context()) {
			req = req.WithContext(WithDeep(req.Context()))
		}
		handler.ServeHTTP(w, req)
	})
}

func mayReviewDeep(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.APIGroup != "authorization.k8s.io" || info.Resource != "subjectaccessreviews" || info.Verb != "create" {
		return false
	}
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), GroupMasters)
}
