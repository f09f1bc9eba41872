package frontproxy

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for everything it made, for RootShards and Shards of the namespace, and for the
// Secrets and ConfigMaps that a FrontProxy may refer to.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "frontproxy",
		Kind:    &operatorv1alpha1.FrontProxy{},
		List:    &operatorv1alpha1.FrontProxyList{},
		Owned:   ladder.OfServer(),
		Named:   []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}},
		Mounted: ladder.Files(),
	}
}
