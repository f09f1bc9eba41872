package monitoring

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver/operatorapi"
	"github.com/atoll-dev/atoll/test/programs"
)

// startOperator runs the operator against a stock kube-apiserver with an installation that does not become ready, and returns the address of its
// metrics.
func startOperator(t *testing.T, bin string) string {
	t.Helper()
	root := "../.."
	if err := programs.Build(t.Context(), root, bin, "./cmd/operator", "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	server, c := operatorapi.Start(t, root, bin)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, object := range []struct {
		kind, name string
		spec       map[string]any
	}{
		{"RootShard", "root", map[string]any{"external": map[string]any{"hostname": "kcp.example.com", "port": int64(6443)}}},
		{"Shard", "alpha", map[string]any{"rootShard": map[string]any{"ref": map[string]any{"name": "root"}}}},
	} {
		content := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "operator.kcp.io/v1alpha1", "kind": object.kind, "metadata": map[string]any{"namespace": "kcp", "name": object.name}, "spec": object.spec,
		}}
		if err := c.Create(t.Context(), content); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, address := filepath.Join(t.TempDir(), "kubeconfig"), programs.FreeAddress(t)
	installation.WriteKubeconfig(t, server.Config, kubeconfig)
	programs.Start(t, t.TempDir(), filepath.Join(bin, "operator"), "--kubeconfig="+kubeconfig, "--default-image=atoll:test", "--health-probe-bind-address=0",
		"--metrics-secure=false", "--metrics-bind-address="+address)
	return address
}
