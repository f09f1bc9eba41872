// Package versions compares the schemas of a Template before and after an edit, and validates instances with a schema.
package versions

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Change is a difference between two schemas that could invalidate a valid instance.
type Change struct {
	// Text is a sentence that begins with a field.
	Text string
	// Breaking means that a value is no longer allowed. Otherwise the change needs validation of the existing instances.
	Breaking bool
}

// Compare returns the changes from one schema to another that could invalidate a valid instance. If there are none, the new schema may
// replace the old one.
func Compare(before, after *apiextensionsv1.JSONSchemaProps) []Change {
	c := comparison{}
	c.compare("spec", before, after)
	return c.changes
}

type comparison struct{ changes []Change }

// report adds a breaking change.
func (c *comparison) report(path, format string, args ...any) {
	c.changes = append(c.changes, Change{path + ": " + fmt.Sprintf(format, args...), true})
}

// needsValidation adds a change that needs validation of instances, because its effect depends on their values.
func (c *comparison) needsValidation(path, format string, args ...any) {
	c.changes = append(c.changes, Change{path + ": " + fmt.Sprintf(format, args...), false})
}

func (c *comparison) compare(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	if before.Type != after.Type {
		c.report(path, "the type changes from %s to %s", cmp.Or(before.Type, "any"), cmp.Or(after.Type, "any"))
		return
	}
	c.compareProperties(path, before, after)
	c.compareValues(path, before, after)
	c.compareLimits(path, before, after)
	c.compareChild(path+"[]", ItemsOf(before), ItemsOf(after))
	c.compareChild(path+".*", AdditionalOf(before), AdditionalOf(after))
	if !equality.Semantic.DeepEqual(remainder(before), remainder(after)) {
		c.needsValidation(path, "a keyword changes whose effect on existing instances is not known")
	}
}

// compareChild compares the schemas of elements.
func (c *comparison) compareChild(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	switch {
	case after == nil && before == nil:
	case after == nil:
		c.report(path, "the schema of elements is removed")
	case before == nil:
		c.needsValidation(path, "elements get a schema")
	default:
		c.compare(path, before, after)
	}
}

func (c *comparison) compareProperties(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		previous := before.Properties[name]
		if property, ok := after.Properties[name]; ok {
			c.compare(path+"."+name, &previous, &property)
		} else {
			c.report(path+"."+name, "the field is removed")
		}
	}
	if ptr.Deref(before.XPreserveUnknownFields, false) { // instances may have any value there
		for _, name := range slices.Sorted(maps.Keys(after.Properties)) {
			if _, ok := before.Properties[name]; !ok {
				c.needsValidation(path+"."+name, "the field gets a schema, and had any value before")
			}
		}
	}
	for _, name := range after.Required {
		if !slices.Contains(before.Required, name) && after.Properties[name].Default == nil {
			c.report(path+"."+name, "the field is newly required and has no default")
		}
	}
}

// compareValues compares the keywords that restrict values.
func (c *comparison) compareValues(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	if len(after.Enum) > 0 {
		if len(before.Enum) == 0 {
			c.report(path, "the value is newly restricted to an enum")
		}
		for _, value := range before.Enum {
			if !slices.ContainsFunc(after.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
				c.report(path, "the enum loses %s", value.Raw)
			}
		}
	}
	if after.Pattern != "" && after.Pattern != before.Pattern {
		c.needsValidation(path, "the pattern is new or changes")
	}
	if after.Format != "" && after.Format != before.Format {
		c.needsValidation(path, "the format is new or changes")
	}
	if before.Nullable && !after.Nullable {
		c.report(path, "null is no longer allowed")
	}
	for _, rule := range after.XValidations {
		if !slices.ContainsFunc(before.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			c.needsValidation(path, "the rule %q is new", rule.Rule)
		}
	}
}

func (c *comparison) compareLimits(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	limit(c, path, "minimum", before.Minimum, after.Minimum, 1)
	limit(c, path, "maximum", before.Maximum, after.Maximum, -1)
	limit(c, path, "minLength", before.MinLength, after.MinLength, 1)
	limit(c, path, "maxLength", before.MaxLength, after.MaxLength, -1)
	limit(c, path, "minItems", before.MinItems, after.MinItems, 1)
	limit(c, path, "maxItems", before.MaxItems, after.MaxItems, -1)
	limit(c, path, "minProperties", before.MinProperties, after.MinProperties, 1)
	limit(c, path, "maxProperties", before.MaxProperties, after.MaxProperties, -1)
}

// limit reports a narrower limit. direction is 1 for lower limits and -1 for upper ones.
func limit[T int64 | float64](c *comparison, path, name string, before, after *T, direction int) {
	if after != nil && (before == nil || cmp.Compare(*after, *before)*direction > 0) {
		c.report(path, "%s is new or narrower: %v", name, *after)
	}
}

// remainder returns a schema with only the keywords that no other comparison covers, without texts and defaults, which do not affect validity.
func remainder(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	r := *schema
	r.ID, r.Title, r.Description, r.Example, r.ExternalDocs, r.Default = "", "", "", nil, nil, nil
	r.Properties, r.Required, r.Items, r.AdditionalProperties = nil, nil, nil, nil
	r.Enum, r.Pattern, r.Format, r.Nullable, r.XValidations = nil, "", "", false, nil
	r.Minimum, r.Maximum, r.MinLength, r.MaxLength = nil, nil, nil, nil
	r.MinItems, r.MaxItems, r.MinProperties, r.MaxProperties = nil, nil, nil, nil
	return &r
}

// ItemsOf returns the schema of the items of a list, or nil.
func ItemsOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

// AdditionalOf returns the schema of the values of a map, or nil.
func AdditionalOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}
