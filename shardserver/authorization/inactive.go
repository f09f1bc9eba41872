package authorization

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// openWhileInactive are the paths, relative to a logical cluster, that remain available while it is inactive, so that
// it can be inspected and activated.
var openWhileInactive = []string{"/openapi", "/apis/core.kcp.io/v1alpha1/logicalclusters"}

var errInactive = errors.New("logical cluster is marked inactive")

// WithoutInactive refuses requests of all users to logical clusters that are marked inactive. A logical cluster that is
// being deleted stays available, because its content could not be removed otherwise. The filter must run after the
// resolution of the path and before every handler that acts on the request.
func WithoutInactive(handler http.Handler, registry *storage.Registry, s runtime.NegotiatedSerializer) http.Handler {
	clusters := newLogicalClusters(registry)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, ok := logicalcluster.From(req.Context())
		if !ok || cluster.IsWildcard() || cluster.IsSystem() || OpenWhileInactive(req.URL.Path) {
			handler.ServeHTTP(w, req)
			return
		}
		state, err := clusters.state(req.Context())
		var refusal *apierrors.StatusError
		switch {
		case err != nil:
			refusal = apierrors.NewInternalError(err)
		case state.inactive():
			refusal = apierrors.NewForbidden(corev1alpha1.Resource("logicalclusters"), cluster.String(), errInactive)
		default:
			handler.ServeHTTP(w, req)
			return
		}
		responsewriters.ErrorNegotiated(refusal, s, corev1alpha1.SchemeGroupVersion, w, req)
	})
}

// OpenWhileInactive reports whether a path, relative to a logical cluster, is available while the logical cluster is
// inactive.
func OpenWhileInactive(path string) bool {
	for _, open := range openWhileInactive {
		if path == open || strings.HasPrefix(path, open+"/") {
			return true
		}
	}
	return false
}

func (s state) inactive() bool {
	return !s.deleting &&
		(s.annotations[corev1alpha1.InactiveAnnotationKey] == "true" || s.annotations[corev1alpha1.LegacyInactiveAnnotationKey] == "true")
}

// Inactive reports whether a logical cluster is marked inactive.
func Inactive(cluster *corev1alpha1.LogicalCluster) bool {
	return state{deleting: cluster.DeletionTimestamp != nil, annotations: cluster.Annotations}.inactive()
}
