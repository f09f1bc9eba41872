package loopback

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// recorder responds to every request with an empty object and records the path.
type recorder struct {
	requests atomic.Int64
	path     atomic.Value
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests.Add(1)
	r.path.Store(req.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace"}`))
}

func TestClientsUseClusterOfContext(t *testing.T) {
	seen := &recorder{}
	server := httptest.NewServer(seen)
	defer server.Close()
	clients, err := NewClients(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := logicalcluster.With(context.Background(), logicalcluster.MustParseName("a"))
	admin := logicalcluster.With(context.Background(), logicalcluster.Admin)

	for name, tc := range map[string]struct {
		send func() error
		path string
	}{
		"a typed get of a namespaced object": {
			func() error {
				return clients.Typed.Get(a, client.ObjectKey{Namespace: "n", Name: "x"}, &corev1.ConfigMap{})
			},
			"/clusters/a/api/v1/namespaces/n/configmaps/x",
		},
		"a typed get of a cluster-scoped kcp object": {
			func() error {
				return clients.Typed.Get(a, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, &corev1alpha1.LogicalCluster{})
			},
			"/clusters/a/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
		},
		"a workspace type": {
			func() error {
				return clients.Typed.Get(a, client.ObjectKey{Name: "x"}, &tenancyv1alpha1.WorkspaceType{})
			},
			"/clusters/a/apis/tenancy.kcp.io/v1alpha1/workspacetypes/x",
		},
		"a clientset in a system cluster": {
			func() error {
				_, err := clients.Kubernetes.CoordinationV1().Leases("kube-system").Get(admin, "kcp-controllers", metav1.GetOptions{})
				return err
			},
			"/clusters/system:admin/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcp-controllers",
		},
		"a deletion by metadata": {
			func() error {
				return clients.Metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("n").Delete(a, "x", metav1.DeleteOptions{})
			},
			"/clusters/a/api/v1/namespaces/n/secrets/x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.send(); err != nil {
				t.Fatal(err)
			}
			if got := seen.path.Load(); got != tc.path {
				t.Errorf("requested %v, want %s", got, tc.path)
			}
		})
	}
}

func TestRequestWithoutCluster(t *testing.T) {
	seen := &recorder{}
	server := httptest.NewServer(seen)
	defer server.Close()
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Get(context.Background(), client.ObjectKey{Name: "x"}, &corev1.Namespace{})
	if err == nil || !strings.Contains(err.Error(), "no logical cluster") {
		t.Errorf("got %v", err)
	}
	if n := seen.requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
