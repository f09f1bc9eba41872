// Package crdschema bounds the work of validating one value against the schema of a definition: tenants write both, the work is the size of
// the schema of a value times the number of values, and does not end with the request.
package crdschema

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxWork bounds the alternatives, the values of enumerations and the characters of patterns that one value is compared with. Known
// definitions have some hundreds.
const MaxWork = 5000

type schema = apiextensions.JSONSchemaProps

// Validate returns errors for the schemas of a definition in which one value requires more work than the limit. It accepts schemas that
// the stored definition has, in any version; old is nil when a definition is created.
func Validate(definition, old *apiextensions.CustomResourceDefinition, limit int) field.ErrorList {
	var stored []*schema
	if old != nil {
		for i := range old.Spec.Versions {
			stored = append(stored, schemaOf(old, i))
		}
	}
	var errs field.ErrorList
	for i := range definition.Spec.Versions {
		root := schemaOf(definition, i)
		if root == nil || isStored(root, stored) {
			continue
		}
		at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		if err := check([]*schema{root}, at, limit); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// schemaOf returns the schema of one version. The internal type stores a schema that is the same in all versions only once.
func schemaOf(definition *apiextensions.CustomResourceDefinition, version int) *schema {
	validation := definition.Spec.Versions[version].Schema
	if definition.Spec.Validation != nil {
		validation = definition.Spec.Validation
	}
	if validation == nil {
		return nil
	}
	return validation.OpenAPIV3Schema
}

func isStored(root *schema, stored []*schema) bool {
	for _, other := range stored {
		if equality.Semantic.DeepEqual(root, other) {
			return true
		}
	}
	return false
}

// check returns an error for the first value with too much work. All given schemas apply to one value.
func check(schemas []*schema, at *field.Path, limit int) *field.Error {
	all := withAlternatives(schemas)
	if work := workOf(all); work > limit {
		return field.Invalid(at, work, fmt.Sprintf("must have at most %d alternatives, values of enumerations and characters of patterns for one value", limit))
	}
	properties, elements, additional := map[string][]*schema{}, []*schema{}, []*schema{}
	for _, s := range all {
		for name := range s.Properties {
			property := s.Properties[name]
			properties[name] = append(properties[name], &property)
		}
		if s.Items != nil && s.Items.Schema != nil {
			elements = append(elements, s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			additional = append(additional, s.AdditionalProperties.Schema)
		}
	}
	for name, schemas := range properties {
		if err := check(schemas, at.Child("properties").Key(name), limit); err != nil {
			return err
		}
	}
	for name, schemas := range map[string][]*schema{"items": elements, "additionalProperties": additional} {
		if len(schemas) == 0 {
			continue
		}
		if err := check(schemas, at.Child(name), limit); err != nil {
			return err
		}
	}
	return nil
}

// withAlternatives returns schemas together with all others that apply to the same value.
func withAlternatives(schemas []*schema) []*schema {
	all := append([]*schema{}, schemas...)
	for i := 0; i < len(all); i++ { // the list grows
		s := all[i]
		for _, alternatives := range [][]schema{s.AllOf, s.AnyOf, s.OneOf} {
			for j := range alternatives {
				all = append(all, &alternatives[j])
			}
		}
		if s.Not != nil {
			all = append(all, s.Not)
		}
	}
	return all
}

func workOf(schemas []*schema) int {
	work := len(schemas)
	for _, s := range schemas {
		work += len(s.Enum) + len(s.Pattern)
	}
	return work
}
