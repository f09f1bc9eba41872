package builtin

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// tokenReviews adds the logical cluster of a review to the request that upstream authenticates, which has a context of its
// own: a logical cluster may have token issuers of its own. Upstream has no extension point for it.
type tokenReviews struct {
	*tokenreview.REST
	authenticator authenticator.Request
	audiences     authenticator.Audiences
}

func newTokenReviews(cfg Config) rest.Storage {
	return &tokenReviews{tokenreview.NewREST(cfg.Authenticator, cfg.APIAudiences), cfg.Authenticator, cfg.APIAudiences}
}

// Create implements rest.Creater.
func (r *tokenReviews) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	cluster, _ := logicalcluster.From(ctx)
	inCluster := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return r.authenticator.AuthenticateRequest(req.WithContext(logicalcluster.With(req.Context(), cluster)))
	})
	return tokenreview.NewREST(inCluster, r.audiences).Create(ctx, obj, validate, options)
}
