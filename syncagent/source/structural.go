package source

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// maxNodes bounds a schema after the resolution of all references. Pods, the largest kind of Kubernetes, need a tenth.
const maxNodes = 30_000

// converter converts components of an OpenAPI document to one structural schema without references.
type converter struct {
	components map[string]json.RawMessage
	// open are the components that enclose the current one: a reference to one of them is a recursion.
	open  map[string]bool
	nodes int
}

func newConverter(components map[string]json.RawMessage) *converter {
	return &converter{components: components, open: map[string]bool{}}
}

// root returns the schema of the component of a kind. It replaces the schema of metadata, because definitions do not describe metadata.
func (c *converter) root(name string) (*apiextensionsv1.JSONSchemaProps, error) {
	root, err := c.component(name)
	if err != nil {
		return nil, err
	}
	root.Type = "object"
	if root.Properties == nil {
		root.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	root.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	root.Default = nil
	return root, nil
}

// component returns the schema of a component. If a component contains itself, the inner one accepts any content.
func (c *converter) component(name string) (*apiextensionsv1.JSONSchemaProps, error) {
	text, ok := c.components[name]
	if !ok {
		return nil, fmt.Errorf("the OpenAPI document refers to %q, but does not have it", name)
	}
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal(text, schema); err != nil {
		return nil, fmt.Errorf("reading component %s: %w", name, err)
	}
	if c.open[name] {
		return &apiextensionsv1.JSONSchemaProps{Description: schema.Description, Type: schema.Type, XPreserveUnknownFields: ptr.To(true)}, nil
	}
	c.open[name] = true
	defer delete(c.open, name)
	return c.convert(schema)
}

// convert returns the structural form of a schema.
func (c *converter) convert(schema *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, error) {
	if c.nodes++; c.nodes > maxNodes {
		return nil, fmt.Errorf("the schema has more than %d fields", maxNodes)
	}
	if name := reference(schema); name != "" {
		return c.resolve(schema, name)
	}
	result := *schema
	result.ID, result.Schema, result.Example, result.ExternalDocs = "", "", nil, nil
	result.Definitions, result.Dependencies, result.PatternProperties, result.AdditionalItems = nil, nil, nil, nil
	result.UniqueItems = false
	if isIntOrString(schema) {
		return intOrString(schema), nil
	}
	if result.Type == "" && len(result.Properties) > 0 {
		result.Type = "object"
	}
	removeTypedAlternatives(&result)
	if result.Type != "array" { // bytes are strings in OpenAPI, but lists in Go
		result.XListType, result.XListMapKeys = nil, nil
	}
	var err error
	switch result.Type {
	case "":
		result = apiextensionsv1.JSONSchemaProps{Description: result.Description, XPreserveUnknownFields: ptr.To(true)}
	case "object":
		err = c.convertObject(&result)
	case "array":
		err = c.convertArray(&result)
	case "string":
		// Clients of Kubernetes write unset times as null.
		result.Nullable = result.Nullable || result.Format == "date-time"
	}
	return &result, err
}

// resolve returns the referenced component of a schema, with the description, default, map type and nullability of the reference.
func (c *converter) resolve(schema *apiextensionsv1.JSONSchemaProps, name string) (*apiextensionsv1.JSONSchemaProps, error) {
	resolved, err := c.component(name)
	if err != nil {
		return nil, err
	}
	if schema.Description != "" {
		resolved.Description = schema.Description
	}
	if schema.Default != nil {
		resolved.Default = schema.Default
	}
	if schema.XMapType != nil {
		resolved.XMapType = schema.XMapType
	}
	resolved.Nullable = resolved.Nullable || schema.Nullable
	return resolved, nil
}

// reference returns the name of the component that a schema references, or an empty string. A reference with a description or a default
// is the only element of allOf.
func reference(schema *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schema.Ref != nil:
		return strings.TrimPrefix(*schema.Ref, referencePrefix)
	case len(schema.AllOf) == 1 && schema.AllOf[0].Ref != nil:
		return strings.TrimPrefix(*schema.AllOf[0].Ref, referencePrefix)
	}
	return ""
}

func (c *converter) convertObject(object *apiextensionsv1.JSONSchemaProps) error {
	values := object.AdditionalProperties
	object.AdditionalProperties = nil
	switch {
	case len(object.Properties) > 0:
		return c.convertProperties(object)
	case values != nil && values.Schema != nil:
		converted, err := c.convert(values.Schema)
		if err != nil {
			return err
		}
		converted.Default = nil
		object.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: converted}
	default: // for example a RawExtension
		object.XPreserveUnknownFields = ptr.To(true)
	}
	return nil
}

func (c *converter) convertProperties(object *apiextensionsv1.JSONSchemaProps) error {
	properties := make(map[string]apiextensionsv1.JSONSchemaProps, len(object.Properties))
	for name, property := range object.Properties {
		converted, err := c.convert(&property)
		if err != nil {
			return err
		}
		if isZero(converted.Default) {
			converted.Default = nil
		}
		// Clients of Kubernetes write required empty lists and maps as null.
		if slices.Contains(object.Required, name) && (converted.Type == "array" || converted.AdditionalProperties != nil) {
			converted.Nullable = true
		}
		properties[name] = *converted
	}
	object.Properties = properties
	object.Required = slices.DeleteFunc(slices.Clone(object.Required), func(name string) bool { _, ok := properties[name]; return !ok })
	return nil
}

func (c *converter) convertArray(array *apiextensionsv1.JSONSchemaProps) error {
	items := &apiextensionsv1.JSONSchemaProps{}
	if array.Items != nil && array.Items.Schema != nil {
		items = array.Items.Schema
	}
	converted, err := c.convert(items)
	if err != nil {
		return err
	}
	converted.Default = nil
	array.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: converted}
	if !validListType(array, converted) {
		array.XListType, array.XListMapKeys = nil, nil
	}
	return nil
}

// validListType reports whether a definition may have a list of this type. If not, the list is atomic.
func validListType(array, items *apiextensionsv1.JSONSchemaProps) bool {
	switch ptr.Deref(array.XListType, "") {
	case "map":
		return items.Type == "object" && len(array.XListMapKeys) > 0 && !slices.ContainsFunc(array.XListMapKeys, func(key string) bool {
			property, ok := items.Properties[key]
			scalar := ok && property.Type != "object" && property.Type != "array" && (property.Type != "" || property.XIntOrString)
			return !scalar || property.Nullable || !slices.Contains(items.Required, key) && property.Default == nil
		})
	case "set":
		if items.Nullable {
			return false
		}
		switch items.Type {
		case "object":
			return ptr.Deref(items.XMapType, "") == "atomic"
		case "array":
			return ptr.Deref(items.XListType, "atomic") == "atomic"
		}
		return items.Type != ""
	}
	return true
}

// isIntOrString reports whether a schema is that of IntOrString or Quantity.
func isIntOrString(schema *apiextensionsv1.JSONSchemaProps) bool {
	if schema.XIntOrString || schema.Format == "int-or-string" {
		return true
	}
	var hasString, hasNumber bool
	for _, alternative := range slices.Concat(schema.OneOf, schema.AnyOf) {
		hasString = hasString || alternative.Type == "string"
		hasNumber = hasNumber || alternative.Type == "integer" || alternative.Type == "number"
	}
	return schema.Type == "" && hasString && hasNumber
}

func intOrString(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{
		Description: schema.Description, Default: schema.Default, Nullable: schema.Nullable, Pattern: schema.Pattern, XIntOrString: true,
		XValidations: schema.XValidations, AnyOf: []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}},
	}
}

// removeTypedAlternatives removes types and references below allOf, anyOf, oneOf and not, which a structural schema must not have.
func removeTypedAlternatives(schema *apiextensionsv1.JSONSchemaProps) {
	typed := func(alternative apiextensionsv1.JSONSchemaProps) bool {
		return alternative.Type != "" || reference(&alternative) != ""
	}
	if slices.ContainsFunc(schema.AllOf, typed) {
		schema.AllOf = nil
	}
	if slices.ContainsFunc(schema.AnyOf, typed) {
		schema.AnyOf = nil
	}
	if slices.ContainsFunc(schema.OneOf, typed) {
		schema.OneOf = nil
	}
	if schema.Not != nil && typed(*schema.Not) {
		schema.Not = nil
	}
}

// isZero reports whether a default of OpenAPI only restates Go's zero value. Such defaults are often invalid values.
func isZero(value *apiextensionsv1.JSON) bool {
	if value == nil {
		return false
	}
	switch strings.TrimSpace(string(value.Raw)) {
	case `""`, "0", "false", "{}", "null", "[]":
		return true
	}
	return false
}
