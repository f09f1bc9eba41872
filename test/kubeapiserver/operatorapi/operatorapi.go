// Package operatorapi starts a kube-apiserver that serves the kinds of the operator and of cert-manager. It is apart from package kubeapiserver, so that
// modules of tests that need a server only do not depend on cert-manager.
package operatorapi

import (
	"path/filepath"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

// Start builds kube-apiserver into bin, starts it, and returns it when it serves the kinds of the operator and of cert-manager, with a
// client of an administrator that knows them. root is the folder of this project.
func Start(t testing.TB, root, bin string) (*kubeapiserver.Cluster, client.Client) {
	t.Helper()
	if err := programs.Build(t.Context(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	cluster := kubeapiserver.Start(t, bin)
	cluster.WaitReady(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, operatorv1alpha1.AddToScheme, certmanagerv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	kubeapiserver.Define(t, c, filepath.Join(root, "config", "crd", "bases"))
	kubeapiserver.DefineCertManager(t, c)
	return cluster, c
}
