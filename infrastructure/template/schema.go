package template

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// schemaPrefix is followed by the head of the hash in names of schemas.
const schemaPrefix = "tmpl"

// Schema returns the APIResourceSchema of a definition, which is named by its content.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	return apiresourceschema.ByContent(definition, schemaPrefix)
}
