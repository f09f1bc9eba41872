package virtualworkspace

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for everything it made, for the shards that servers stand beside with
// their cache servers, and for the Secrets and ConfigMaps that a VirtualWorkspace may refer to.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "virtualworkspace",
		Kind:    &operatorv1alpha1.VirtualWorkspace{},
		List:    &operatorv1alpha1.VirtualWorkspaceList{},
		Owned:   ladder.OfServer(),
		Named:   []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.CacheServer{}},
		Mounted: ladder.Files(),
	}
}
