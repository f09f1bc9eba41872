package shard

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for everything it made, for what Shards of the namespace may name, and for the
// Secrets and ConfigMaps that a Shard may refer to. Those of the other shards of the installation are among them.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "shard",
		Kind:    &operatorv1alpha1.Shard{},
		List:    &operatorv1alpha1.ShardList{},
		Owned:   slices.Concat(ladder.OfServer(), ladder.OfStore()),
		Named:   []client.Object{&operatorv1alpha1.RootShard{}, &operatorv1alpha1.CacheServer{}, &operatorv1alpha1.VirtualWorkspace{}},
		Mounted: ladder.Files(),
	}
}
