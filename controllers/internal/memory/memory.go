// Package memory contains an in-memory client for tests of reconcilers. No controller reconciles the objects that a test applies.
package memory

import (
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// NewClient returns a client of a cluster with these objects. The status of the kinds of the operator is a subresource.
func NewClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(
		&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.FrontProxy{},
		&operatorv1alpha1.CacheServer{}, &operatorv1alpha1.VirtualWorkspace{}, &operatorv1alpha1.Kubeconfig{},
		&operatorv1alpha1.BackupStore{}, &operatorv1alpha1.Backup{}, &operatorv1alpha1.BackupSchedule{}, &operatorv1alpha1.Restore{}, &operatorv1alpha1.RestoreDrill{},
	).Build()
}
