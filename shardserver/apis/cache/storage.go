// Package cache serves the group cache.kcp.io: ClusterCachedResource and ClusterCachedResourceEndpointSlice. Publishing
// objects to the cache, and its authorization, are implemented in other packages; this package validates single objects
// only.
package cache

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var (
	groupPattern    = regexp.MustCompile(`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9]$`)
	pathPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// Storages returns the stores of cache.kcp.io/v1alpha1 by resource: "clustercachedresources" and
// "clustercachedresourceendpointslices", each with its "/status".
func Storages(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storages := map[string]rest.Storage{}
	if err := registry.NewStores(resources, legacyscheme.Scheme, getter, storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(slices, legacyscheme.Scheme, getter, storages); err != nil {
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
