package crdschema_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/atoll-dev/atoll/internal/crdschema"
)

type schema = apiextensions.JSONSchemaProps

func definition(schemas ...schema) *apiextensions.CustomResourceDefinition {
	d := &apiextensions.CustomResourceDefinition{}
	for i := range schemas {
		d.Spec.Versions = append(d.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{
			Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &schemas[i]},
		})
	}
	return d
}

func enum(values int) schema { return schema{Enum: make([]apiextensions.JSON, values)} }

func property(s schema) schema { return schema{Properties: map[string]schema{"a": s}} }

func TestValidate(t *testing.T) {
	const limit = 20
	list := func(s schema) schema { return schema{Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &s}} }
	dictionary := func(s schema) schema {
		return schema{AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Schema: &s}}
	}
	for name, test := range map[string]struct {
		schema schema
		field  string // of the error, below the schema; "none" if there is no error
	}{
		"an enumeration at the limit":         {enum(19), "none"},
		"an enumeration beyond the limit":     {property(enum(20)), ".properties[a]"},
		"a long pattern":                      {property(schema{Pattern: strings.Repeat("a", 20)}), ".properties[a]"},
		"of the elements of a list":           {property(list(enum(20))), ".properties[a].items"},
		"of the values of a map":              {dictionary(enum(20)), ".additionalProperties"},
		"alternatives are added":              {schema{AnyOf: []schema{enum(9), enum(9)}}, ""}, // 18 values of 3 schemas
		"alternatives of alternatives":        {schema{AllOf: []schema{{OneOf: []schema{enum(9), {Not: &schema{Pattern: "0123456789"}}}}}}, ""},
		"properties of alternatives add up":   {property(schema{AllOf: []schema{property(enum(15)), property(enum(15))}}), ".properties[a].properties[a]"},
		"different properties do not add up":  {schema{Properties: map[string]schema{"a": enum(15), "b": enum(15)}}, "none"},
		"levels of one path do not add up":    {property(property(enum(15))), "none"},
		"many alternatives without any value": {schema{AnyOf: make([]schema, 20)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := crdschema.Validate(definition(test.schema), nil, limit)
			if test.field == "none" {
				if len(errs) > 0 {
					t.Errorf("got %v", errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != "spec.versions[0].schema.openAPIV3Schema"+test.field {
				t.Errorf("got %v", errs)
			}
		})
	}
}

func TestStoredSchemasMayStay(t *testing.T) {
	if errs := crdschema.Validate(definition(enum(30), enum(3)), definition(enum(2), enum(30)), 20); len(errs) > 0 {
		t.Errorf("a stored schema in another version: %v", errs)
	}
	if errs := crdschema.Validate(definition(enum(31)), definition(enum(30)), 20); len(errs) != 1 {
		t.Errorf("a changed schema: %v", errs)
	}
}
