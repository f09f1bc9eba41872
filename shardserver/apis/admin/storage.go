// Package admin holds the storage of the group admin.kcp.io: PermissionClaimPolicy. Logical clusters do not serve it; the admin workspace
// does (shardserver/virtual/admin).
package admin

import (
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Storages returns the stores of admin.kcp.io/v1alpha1 by resource: "permissionclaimpolicies".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	return storages, registry.NewStores(permissionClaimPolicies, legacyscheme.Scheme, getter, storages)
}
