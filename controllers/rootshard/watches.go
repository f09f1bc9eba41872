package rootshard

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for everything it made, for what its RootShards may name, and for the Secrets and
// ConfigMaps that they may refer to.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "rootshard",
		Kind:    &operatorv1alpha1.RootShard{},
		List:    &operatorv1alpha1.RootShardList{},
		Owned:   slices.Concat(ladder.OfServer(), ladder.OfStore()),
		Named:   []client.Object{&operatorv1alpha1.Shard{}, &operatorv1alpha1.CacheServer{}, &operatorv1alpha1.VirtualWorkspace{}},
		Mounted: ladder.Files(),
	}
}
