package template

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// schemaPrefix precedes the beginning of the hash in names of schemas.
const schemaPrefix = "tmpl"

// CatalogueSchemaPrefix is the name prefix of the schemas of Templates themselves, whose plural is Resource.
const (
	CatalogueSchemaPrefix = "catalogue"
	Resource              = "templates"
)

// isPruned reports whether a schema belongs to the provider, which deletes it when it is unused.
func isPruned(schema *apisv1alpha1.APIResourceSchema, group string) bool {
	_, ofTemplate := schema.Labels[LabelTemplate(group)]
	return ofTemplate || schema.Spec.Group == group && schema.Spec.Names.Plural == Resource && strings.HasPrefix(schema.Name, CatalogueSchemaPrefix)
}

// Schema returns the APIResourceSchema of a CRD. Its name is derived from its content.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	return apiresourceschema.ByContent(definition, schemaPrefix)
}
