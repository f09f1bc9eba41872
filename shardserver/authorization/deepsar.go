package authorization

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// DeepSARHeader requests that a SubjectAccessReview skips required groups, workspace content and maximal permission
// policies. It is honoured for privileged groups only.
const DeepSARHeader = "X-Kcp-Internal-Deep-SubjectAccessReview"

type deepSARKey struct{}

// WithDeepSAR makes decisions in the context skip required groups and workspace content. It is for checks that the
// server makes itself about a logical cluster of any shard, which the user need not be able to access.
func WithDeepSAR(ctx context.Context) context.Context {
	return context.WithValue(ctx, deepSARKey{}, true)
}

func isDeepSAR(ctx context.Context) bool {
	deepSAR, _ := ctx.Value(deepSARKey{}).(bool)
	return deepSAR
}

// WithDeepSARHeader marks SubjectAccessReviews that carry the header, if the user is privileged. It must run after
// authorization: the mark changes the result of the review, not whether it may be created.
func WithDeepSARHeader(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if requested, err := strconv.ParseBool(req.Header.Get(DeepSARHeader)); err == nil && requested && canRequestDeepSAR(req.Context()) {
			req = req.WithContext(WithDeepSAR(req.Context()))
		}
		handler.ServeHTTP(w, req)
	})
}

func canRequestDeepSAR(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.APIGroup != "authorization.k8s.io" || info.Resource != "subjectaccessreviews" || info.Verb != "create" {
		return false
	}
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), GroupMasters)
}
