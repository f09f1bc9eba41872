package cacheserver

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/ladder"
)

// Watches implements ladder.Controller: it wakes for everything it made, for the caches above its CacheServers, and for the
// Secrets and ConfigMaps that they may refer to.
func (r *Reconciler) Watches() ladder.Watches {
	return ladder.Watches{
		Name:    "cacheserver",
		Kind:    &operatorv1alpha1.CacheServer{},
		List:    &operatorv1alpha1.CacheServerList{},
		Owned:   slices.Concat(ladder.OfServer(), ladder.OfStore()),
		Named:   []client.Object{&operatorv1alpha1.CacheServer{}, &operatorv1alpha1.RootShard{}},
		Mounted: ladder.Files(),
	}
}
