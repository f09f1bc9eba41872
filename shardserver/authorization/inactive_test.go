package authorization_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/kubernetes/pkg/api/legacyscheme"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/authorization/shardtest"
)

func TestInactiveLogicalClustersAreRejected(t *testing.T) {
	s := shardtest.Start(t)
	s.CreateCluster(t, clusterA, map[string]string{corev1alpha1.InactiveAnnotationKey: "true"})
	s.CreateCluster(t, clusterB, map[string]string{corev1alpha1.InactiveAnnotationKey: "false"})
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	handler := authorization.WithInactiveCheck(next, s.Registry, legacyscheme.Codecs, nil)
	for name, tc := range map[string]struct {
		cluster logicalcluster.Name
		path    string
		want    int
	}{
		"rejects other paths":                  {clusterA, "/api/v1/namespaces", http.StatusForbidden},
		"rejects other resources of the group": {clusterA, "/apis/core.kcp.io/v1alpha1/shards", http.StatusForbidden},
		"rejects paths with the same prefix":   {clusterA, "/apis/core.kcp.io/v1alpha1/logicalclustersx", http.StatusForbidden},
		"serves the logical cluster":           {clusterA, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", http.StatusOK},
		"serves OpenAPI":                       {clusterA, "/openapi/v3/api", http.StatusOK},
		"serves another logical cluster":       {clusterB, "/api/v1/namespaces", http.StatusOK},
		"ignores unknown logical clusters":     {logicalcluster.Root, "/api/v1/namespaces", http.StatusOK},
		"ignores the wildcard":                 {logicalcluster.Wildcard, "/api/v1/namespaces", http.StatusOK},
		"ignores paths of the shard":           {logicalcluster.Name{}, "/livez", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(logicalcluster.With(t.Context(), tc.cluster), http.MethodGet, tc.path, nil)
			recorder := httptest.NewRecorder()
			if handler.ServeHTTP(recorder, req); recorder.Code != tc.want {
				t.Errorf("got %d %s", recorder.Code, recorder.Body)
			}
		})
	}
}
