// Package core serves the group core.kcp.io: LogicalCluster and Shard. Permissions are checked by admission; this
// package validates single objects only.
package core

import (
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Storages returns the stores of core.kcp.io/v1alpha1 by resource: "logicalclusters", "logicalclusters/status",
// "shards" and "shards/status".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	if err := registry.NewStores(logicalClusters, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(shards, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	return storages, nil
}
