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

// openWhileInactive are the paths, below a logical cluster, by which an inactive one can be looked at and activated.
var openWhileInactive = []string{"/openapi", "/apis/core.kcp.io/v1alpha1/logicalclusters"}

var errInactive = errors.New("logical cluster is marked inactive")

// WithoutInactive refuses requests to logical clusters that are marked inactive, whoever sends them. One that is
// being deleted is let through, or its content could never be removed. It belongs behind the resolution of the path,
// and in front of everything that acts on the request.
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

// OpenWhileInactive tells whether a path, below a logical cluster, can be used although it is inactive.
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

// Inactive tells whether a logical cluster is marked to be out of service.
func Inactive(cluster *corev1alpha1.LogicalCluster) bool {
	return state{deleting: cluster.DeletionTimestamp != nil, annotations: cluster.Annotations}.inactive()
}
