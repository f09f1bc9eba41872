// Package apiextensions serves customresourcedefinitions of the group apiextensions.k8s.io: the stock registry, over
// storage in which equal definitions of different logical clusters share memory.
//
// Serving the defined resources must be implemented in the packages below shardserver/customresources.
package apiextensions

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Definitions is the resource of this group.
var Definitions = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

func init() {
	install.Install(legacyscheme.Scheme)
}

// NewStorage returns the group. Decoded definitions share memory through specs.
func NewStorage(getter generic.RESTOptionsGetter, specs *SpecInterner) (genericapiserver.APIGroupInfo, error) {
	definitions, err := customresourcedefinition.NewREST(legacyscheme.Scheme, interningOptions{getter, specs})
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating storage of customresourcedefinitions: %w", err)
	}
	definitions.CreateStrategy, definitions.UpdateStrategy = createStrategy{definitions.CreateStrategy}, updateStrategy{definitions.UpdateStrategy}
	info := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.VersionedResourcesStorageMap[apiextensionsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		Definitions.Resource:             collectionDeleter{definitions},
		Definitions.Resource + "/status": customresourcedefinition.NewStatusREST(legacyscheme.Scheme, definitions),
	}
	return info, nil
}
