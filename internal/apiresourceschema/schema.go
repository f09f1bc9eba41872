// Package apiresourceschema converts CustomResourceDefinitions to the APIResourceSchemas of an APIExport, without a server.
package apiresourceschema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// coreGroup replaces the legacy group in the names of schemas.
const coreGroup = "core"

// FromDefinition returns the APIResourceSchema of a definition, named <prefix>.<plural>.<group>. It returns an error for features that a
// schema does not support: webhooks behind a Service, preserveUnknownFields, versions without a schema.
func FromDefinition(definition *apiextensionsv1.CustomResourceDefinition, prefix string) (*apisv1alpha1.APIResourceSchema, error) {
	spec := &definition.Spec
	if spec.PreserveUnknownFields {
		return nil, errors.New("spec.preserveUnknownFields: schemas are structural; use x-kubernetes-preserve-unknown-fields in the schema instead")
	}
	if len(spec.Versions) == 0 {
		return nil, errors.New("spec.versions is empty")
	}
	group := spec.Group
	if group == "" {
		group = coreGroup
	}
	schema := &apisv1alpha1.APIResourceSchema{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIResourceSchema"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("%s.%s.%s", prefix, spec.Names.Plural, group),
			Annotations: approvalAnnotations(definition),
		},
		Spec: apisv1alpha1.APIResourceSchemaSpec{Group: spec.Group, Names: completeNames(spec.Names), Scope: spec.Scope},
	}
	var err error
	if schema.Spec.Conversion, err = convertConversion(spec); err != nil {
		return nil, err
	}
	for i := range spec.Versions {
		version, err := convertVersion(&spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", spec.Versions[i].Name, err)
		}
		schema.Spec.Versions = append(schema.Spec.Versions, version)
	}
	return schema, nil
}

// ByContent returns the APIResourceSchema of a definition under a name that is a function of its content,
// <prefix><hash>.<plural>.<group>, so that the same content never creates a second object. It ignores the conversion of the definition,
// because schemas have none of their own.
func ByContent(definition *apiextensionsv1.CustomResourceDefinition, prefix string) (*apisv1alpha1.APIResourceSchema, error) {
	content := *definition
	content.Spec.Conversion = nil
	// The encoder sorts keys of maps and has a fixed order of struct fields, so the text is canonical.
	text, err := json.Marshal(content.Spec)
	if err != nil {
		return nil, fmt.Errorf("hashing the definition: %w", err)
	}
	sum := sha256.Sum256(text)
	return FromDefinition(&content, prefix+hex.EncodeToString(sum[:4]))
}

// completeNames sets the names that the server defaults in a definition, but that a schema requires.
func completeNames(names apiextensionsv1.CustomResourceDefinitionNames) apiextensionsv1.CustomResourceDefinitionNames {
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" {
		names.ListKind = names.Kind + "List"
	}
	return names
}

// approvalAnnotations returns the annotation that resources in the groups of Kubernetes require. Other annotations describe the
// definition, not the schema.
func approvalAnnotations(definition *apiextensionsv1.CustomResourceDefinition) map[string]string {
	value, ok := definition.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]
	if !ok {
		return nil
	}
	return map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: value}
}

func convertVersion(version *apiextensionsv1.CustomResourceDefinitionVersion) (apisv1alpha1.APIResourceVersion, error) {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return apisv1alpha1.APIResourceVersion{}, errors.New("has no schema")
	}
	raw, err := json.Marshal(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return apisv1alpha1.APIResourceVersion{}, fmt.Errorf("writing the schema: %w", err)
	}
	result := apisv1alpha1.APIResourceVersion{
		Name: version.Name, Served: version.Served, Storage: version.Storage,
		Deprecated: version.Deprecated, DeprecationWarning: version.DeprecationWarning,
		Schema:                   runtime.RawExtension{Raw: raw},
		AdditionalPrinterColumns: version.AdditionalPrinterColumns,
		SelectableFields:         version.SelectableFields,
	}
	if version.Subresources != nil {
		result.Subresources = *version.Subresources
	}
	return result, nil
}

// convertConversion returns the conversion strategy. With several versions a schema must have one, where a definition has a
// default.
func convertConversion(spec *apiextensionsv1.CustomResourceDefinitionSpec) (*apisv1alpha1.CustomResourceConversion, error) {
	if spec.Conversion == nil {
		if len(spec.Versions) == 1 {
			return nil, nil
		}
		return &apisv1alpha1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}, nil
	}
	result := &apisv1alpha1.CustomResourceConversion{Strategy: spec.Conversion.Strategy}
	webhook := spec.Conversion.Webhook
	if webhook == nil {
		return result, nil
	}
	result.Webhook = &apisv1alpha1.WebhookConversion{ConversionReviewVersions: webhook.ConversionReviewVersions}
	if config := webhook.ClientConfig; config != nil {
		if config.Service != nil {
			return nil, errors.New("spec.conversion.webhook.clientConfig.service: workspaces have no services; give the webhook a url")
		}
		result.Webhook.ClientConfig = &apisv1alpha1.WebhookClientConfig{CABundle: config.CABundle}
		if config.URL != nil {
			result.Webhook.ClientConfig.URL = *config.URL
		}
	}
	return result, nil
}
