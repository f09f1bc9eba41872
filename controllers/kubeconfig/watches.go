package kubeconfig

import (
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for its certificate, for the targets of the namespace, and for Secrets
// there, so that a renewed certificate is written out at once.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "kubeconfig",
		Kind:    &operatorv1alpha1.Kubeconfig{},
		List:    &operatorv1alpha1.KubeconfigList{},
		Owned:   []client.Object{&certmanagerv1.Certificate{}},
		Named:   []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.FrontProxy{}},
		Mounted: []client.Object{&corev1.Secret{}},
	}
}
