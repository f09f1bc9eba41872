package template

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// schemaPrefix is followed by the head of the hash in names of schemas.
const schemaPrefix = "tmpl"

// CatalogueSchemaPrefix is the prefix of the names of the schemas of Templates themselves, whose plural is Resource.
const (
	CatalogueSchemaPrefix = "catalogue"
	Resource              = "templates"
)

// isPruned reports whether a schema is the provider's, and goes when it is unused.
func isPruned(schema *apisv1alpha1.APIResourceSchema, group string) bool {
	_, ofTemplate := schema.Labels[LabelTemplate(group)]
	return ofTemplate || schema.Spec.Group == group && schema.Spec.Names.Plural == Resource && strings.HasPrefix(schema.Name, CatalogueSchemaPrefix)
}

// Schema returns the APIResourceSchema of a definition, which is named by its content.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	return apiresourceschema.ByContent(definition, schemaPrefix)
}
