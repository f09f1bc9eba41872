package apiindex

import (
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// NameValidationAnnotationKey holds spec.nameValidation of an APIResourceSchema on the CustomResourceDefinition made of
// it, which has no field for it.
const NameValidationAnnotationKey = "apis.kcp.io/name-validation"

// ErrNoConversion means that a schema has several versions but no conversion.
var ErrNoConversion = errors.New("a schema of several versions must say in spec.conversion how to convert between them")

// BoundCRD returns the CustomResourceDefinition that serves an APIResourceSchema. It is stored in
// logicalcluster.BoundCRDs under the UID of the schema and served in every logical cluster that binds the schema. It
// fails with ErrNoConversion, or for a version with an invalid JSON schema.
func BoundCRD(schema *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	if len(schema.Spec.Versions) > 1 && schema.Spec.Conversion == nil {
		return nil, fmt.Errorf("APIResourceSchema %q: %w", schema.Name, ErrNoConversion)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: string(schema.UID), Annotations: crdAnnotations(schema)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:      schema.Spec.Group,
			Names:      *schema.Spec.Names.DeepCopy(),
			Scope:      schema.Spec.Scope,
			Conversion: crdConversion(schema.Spec.Conversion),
		},
	}
	for i := range schema.Spec.Versions {
		version, err := crdVersion(&schema.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("APIResourceSchema %q: %w", schema.Name, err)
		}
		definition.Spec.Versions = append(definition.Spec.Versions, version)
	}
	return definition, nil
}

func crdAnnotations(schema *apisv1alpha1.APIResourceSchema) map[string]string {
	annotations := map[string]string{
		apisv1alpha2.BoundCRDAnnotationKey:      "",
		apisv1alpha2.SchemaClusterAnnotationKey: logicalcluster.Of(schema).String(),
		apisv1alpha2.SchemaNameAnnotationKey:    schema.Name,
	}
	if approval, ok := schema.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		annotations[apiextensionsv1.KubeAPIApprovedAnnotation] = approval
	}
	if schema.Spec.NameValidation == apisv1alpha1.NameValidationPathSegmentName {
		annotations[NameValidationAnnotationKey] = string(schema.Spec.NameValidation)
	}
	return annotations
}

func crdVersion(version *apisv1alpha1.APIResourceVersion) (apiextensionsv1.CustomResourceDefinitionVersion, error) {
	var schema apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(version.Schema.Raw, &schema); err != nil {
		return apiextensionsv1.CustomResourceDefinitionVersion{}, fmt.Errorf("the schema of version %s: %w", version.Name, err)
	}
	copied := version.DeepCopy()
	converted := apiextensionsv1.CustomResourceDefinitionVersion{
		Name:                     version.Name,
		Served:                   version.Served,
		Storage:                  version.Storage,
		Deprecated:               version.Deprecated,
		DeprecationWarning:       copied.DeprecationWarning,
		Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
		AdditionalPrinterColumns: copied.AdditionalPrinterColumns,
		SelectableFields:         copied.SelectableFields,
	}
	if copied.Subresources.Status != nil || copied.Subresources.Scale != nil {
		converted.Subresources = &copied.Subresources
	}
	return converted, nil
}

func crdConversion(conversion *apisv1alpha1.CustomResourceConversion) *apiextensionsv1.CustomResourceConversion {
	if conversion == nil {
		return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	converted := &apiextensionsv1.CustomResourceConversion{Strategy: conversion.Strategy}
	if conversion.Webhook == nil {
		return converted
	}
	webhook := conversion.Webhook.DeepCopy()
	converted.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: webhook.ConversionReviewVersions}
	if webhook.ClientConfig != nil {
		converted.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{CABundle: webhook.ClientConfig.CABundle}
		if webhook.ClientConfig.URL != "" {
			converted.Webhook.ClientConfig.URL = &webhook.ClientConfig.URL
		}
	}
	return converted
}

// StorageVersion returns the storage version of a schema, or "" if it has none.
func StorageVersion(schema *apisv1alpha1.APIResourceSchema) string {
	for _, version := range schema.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}
