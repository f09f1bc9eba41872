package apiindex

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// DiscoveryDefinition returns the definition of a schema that discovery and OpenAPI of virtual workspaces are built
// from. It leaves out the scale subresource, which virtual workspaces do not serve, and conversion, which neither
// document shows.
func DiscoveryDefinition(described *apisv1alpha1.APIResourceSchema) (*apiextensions.CustomResourceDefinition, error) {
	external, err := BoundCRD(described)
	if err != nil {
		return nil, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	object := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external, object, nil); err != nil {
		return nil, fmt.Errorf("converting the definition of APIResourceSchema %q: %w", described.Name, err)
	}
	object.Name = schema.GroupResource{Group: object.Spec.Group, Resource: object.Spec.Names.Plural}.String()
	object.Spec.Conversion = nil
	removeScale(object.Spec.Subresources)
	for i := range object.Spec.Versions {
		removeScale(object.Spec.Versions[i].Subresources)
	}
	object.Status.AcceptedNames = object.Spec.Names
	return object, nil
}

func removeScale(subresources *apiextensions.CustomResourceSubresources) {
	if subresources != nil {
		subresources.Scale = nil
	}
}
