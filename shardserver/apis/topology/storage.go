// Package topology serves the group topology.kcp.io: Partition and PartitionSet. The partitions of a set are computed
// by its controller (shardserver/sharding/topology); this package validates single objects only.
package topology

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Storages returns the stores of topology.kcp.io/v1alpha1 by resource: "partitions", "partitionsets" and
// "partitionsets/status".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	if err := registry.NewStores(partitions, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(partitionSets, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	return storages, nil
}

func validateName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}
