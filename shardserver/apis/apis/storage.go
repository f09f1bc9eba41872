// Package apis serves the group apis.kcp.io: APIResourceSchema, APIExport, APIBinding, APIExportEndpointSlice and
// APIConversion. It validates each object by itself; checks that need other objects or the user belong to admission.
// Exports and bindings have one store each, which is served in two versions.
package apis

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install" // registers the types in the scheme
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var (
	pathPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	groupPattern    = regexp.MustCompile(`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9](/[a-z][-a-z0-9]*[a-z0-9])?$`) // may name a subresource
	versionPattern  = regexp.MustCompile(`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`)
)

// Storages returns the stores of apis.kcp.io by version and resource: all in v1alpha1, "apiexports" and "apibindings"
// and their status in v1alpha2 as well.
func Storages(getter generic.RESTOptionsGetter) (map[string]map[string]rest.Storage, error) {
	sharedStorages, v1alpha1Storages := map[string]rest.Storage{}, map[string]rest.Storage{}
	if err := registry.NewStores(apiExports, legacyscheme.Scheme, getter, sharedStorages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(apiBindings, legacyscheme.Scheme, getter, sharedStorages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(apiResourceSchemas, legacyscheme.Scheme, getter, v1alpha1Storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(apiConversions, legacyscheme.Scheme, getter, v1alpha1Storages); err != nil {
		return nil, err
	}
	if err := registry.NewStores(apiExportEndpointSlices, legacyscheme.Scheme, getter, v1alpha1Storages); err != nil {
		return nil, err
	}
	for name, store := range sharedStorages {
		v1alpha1Storages[name] = store
	}
	return map[string]map[string]rest.Storage{
		apisv1alpha1.SchemeGroupVersion.Version: v1alpha1Storages,
		apisv1alpha2.SchemeGroupVersion.Version: sharedStorages,
	}, nil
}

// validateName applies the rules for names of custom resources.
func validateName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}
