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

// inactivePaths are the paths, relative to a logical cluster, that remain available while it is inactive, so that
// it can be inspected and activated.
var inactivePaths = []string{"/openapi", "/apis/core.kcp.io/v1alpha1/logicalclusters"}

var errInactive = errors.New("logical cluster is marked inactive")

// WithInactiveCheck refuses requests of all users to logical clusters that are marked inactive. A logical cluster that
// is being deleted stays available, because its content could not be removed otherwise. The filter must run after the
// resolution of the path and before every handler that acts on the request.
//
// answered gets the annotations of the LogicalCluster before that, for all paths, and may answer the request itself; it may
// be nil.
func WithInactiveCheck(handler http.Handler, registry *storage.Registry, s runtime.NegotiatedSerializer,
	answered func(http.ResponseWriter, *http.Request, map[string]string) bool) http.Handler {
	clusters := newLogicalClusters(registry)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, ok := logicalcluster.From(req.Context())
		allowed := AllowedWhileInactive(req.URL.Path)
		if !ok || cluster.IsWildcard() || cluster.IsSystem() || (allowed && answered == nil) {
			handler.ServeHTTP(w, req)
			return
		}
		state, err := clusters.state(req.Context())
		var statusErr *apierrors.StatusError
		switch {
		case err != nil:
			statusErr = apierrors.NewInternalError(err)
		case answered != nil && answered(w, req, state.annotations):
			return
		case !allowed && state.isInactive():
			statusErr = apierrors.NewForbidden(corev1alpha1.Resource("logicalclusters"), cluster.String(), errInactive)
		default:
			handler.ServeHTTP(w, req)
			return
		}
		responsewriters.ErrorNegotiated(statusErr, s, corev1alpha1.SchemeGroupVersion, w, req)
	})
}

// AllowedWhileInactive reports whether a path, relative to a logical cluster, is available while the logical cluster is
// inactive.
func AllowedWhileInactive(path string) bool {
	for _, allowed := range inactivePaths {
		if path == allowed || strings.HasPrefix(path, allowed+"/") {
			return true
		}
	}
	return false
}

func (s state) isInactive() bool {
	return !s.deleting &&
		(s.annotations[corev1alpha1.InactiveAnnotationKey] == "true" || s.annotations[corev1alpha1.LegacyInactiveAnnotationKey] == "true")
}

// IsInactive reports whether a logical cluster is marked inactive.
func IsInactive(cluster *corev1alpha1.LogicalCluster) bool {
	return state{deleting: cluster.DeletionTimestamp != nil, annotations: cluster.Annotations}.isInactive()
}
