package authorization

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// DeepReviewHeader asks a SubjectAccessReview to skip required groups, workspace content and maximal permission
// policies. It is honoured for privileged groups only.
const DeepReviewHeader = "X-Kcp-Internal-Deep-SubjectAccessReview"

type deepKey struct{}

// WithDeep marks a context so that decisions in it skip required groups and workspace content. It is for the server's
// own questions about a logical cluster, of whatever shard, that the asking user need not be able to enter.
func WithDeep(ctx context.Context) context.Context { return context.WithValue(ctx, deepKey{}, true) }

func isDeep(ctx context.Context) bool {
	deep, _ := ctx.Value(deepKey{}).(bool)
	return deep
}

// WithDeepReview marks SubjectAccessReviews that ask for it, and may. It belongs behind authorization: what it changes
// is the answer, not whether one may ask.
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
