package apis

import (
	"bytes"
	"encoding/json"
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	exactjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/crdpaths"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiResourceSchemas = &registry.Kind[*apisv1alpha1.APIResourceSchema]{
	Resource: apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"),
	Singular: "apiresourceschema",

	New:      func() *apisv1alpha1.APIResourceSchema { return &apisv1alpha1.APIResourceSchema{} },
	NewList:  func() runtime.Object { return &apisv1alpha1.APIResourceSchemaList{} },
	Default:  install.DefaultAPIResourceSchema,
	CopySpec: func(to, from *apisv1alpha1.APIResourceSchema) { to.Spec = from.Spec },
	SameSpec: func(a, b *apisv1alpha1.APIResourceSchema) bool { return EqualSchemaSpec(a.Spec, b.Spec) },

	ValidateName: validateName,
	ValidateSpec: validateSchemaSpec,
}

var (
	scopes          = []apiextensionsv1.ResourceScope{apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped}
	strategies      = []apiextensionsv1.ConversionStrategyType{apiextensionsv1.NoneConverter, apiextensionsv1.WebhookConverter}
	nameValidations = []apisv1alpha1.NameValidation{apisv1alpha1.NameValidationDNS1123Subdomain, apisv1alpha1.NameValidationPathSegmentName}
)

// EqualSchemaSpec reports whether two specs are semantically equal: order of fields and whitespace in the JSON schemas
// of versions do not matter.
func EqualSchemaSpec(a, b apisv1alpha1.APIResourceSchemaSpec) bool {
	if len(a.Versions) != len(b.Versions) {
		return false
	}
	// The versions are copied, because their schemas are removed below.
	versionsA, versionsB := append([]apisv1alpha1.APIResourceVersion{}, a.Versions...), append([]apisv1alpha1.APIResourceVersion{}, b.Versions...)
	for i := range versionsA {
		if !equalJSON(versionsA[i].Schema.Raw, versionsB[i].Schema.Raw) {
			return false
		}
		versionsA[i].Schema, versionsB[i].Schema = runtime.RawExtension{}, runtime.RawExtension{}
	}
	a.Versions, b.Versions = versionsA, versionsB
	return equality.Semantic.DeepEqual(a, b)
}

func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var valueA, valueB any
	if exactjson.Unmarshal(a, &valueA) != nil || exactjson.Unmarshal(b, &valueB) != nil {
		return false
	}
	return equality.Semantic.DeepEqual(withIntegers(valueA), withIntegers(valueB))
}

// maxExactFloat is the bound below which a float64 has every integer.
const maxExactFloat = 1 << 53

// withIntegers replaces numbers such as 1.0 and 1e2 by integers, in place: clients write them in either form.
func withIntegers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = withIntegers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withIntegers(value[i])
		}
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < maxExactFloat {
			return int64(value)
		}
	}
	return value
}

// validateSchemaSpec applies the rules of the kind's CRD schema. Admission checks whether the spec converts to a valid
// CustomResourceDefinition.
func validateSchemaSpec(schema *apisv1alpha1.APIResourceSchema) field.ErrorList {
	path, spec := field.NewPath("spec"), schema.Spec
	errs := registry.ValidateRequired(spec.Names.Plural, path.Child("names", "plural"))
	errs = append(errs, registry.ValidateRequired(spec.Names.Kind, path.Child("names", "kind"))...)
	errs = append(errs, registry.ValidateRequired(string(spec.Scope), path.Child("scope"))...)
	errs = append(errs, registry.ValidateOneOf(spec.Scope, scopes, path.Child("scope"))...)
	errs = append(errs, registry.ValidateOneOf(spec.NameValidation, nameValidations, path.Child("nameValidation"))...)
	errs = append(errs, validateSchemaVersions(spec.Versions, path.Child("versions"))...)
	if len(spec.Versions) > 1 && spec.Conversion == nil {
		errs = append(errs, field.Invalid(path, "", "conversion must be specified when there are several versions"))
	}
	if spec.Conversion != nil {
		errs = append(errs, validateSchemaConversion(*spec.Conversion, path.Child("conversion"))...)
	}
	return errs
}

func validateSchemaVersions(versions []apisv1alpha1.APIResourceVersion, path *field.Path) field.ErrorList {
	switch {
	case versions == nil:
		return field.ErrorList{field.Required(path, "")}
	case len(versions) == 0:
		return field.ErrorList{field.Invalid(path, 0, "should have at least 1 items")}
	}
	var errs field.ErrorList
	for i, version := range versions {
		at := path.Index(i)
		errs = append(errs, validateVersion(version.Name, at.Child("name"))...)
		switch {
		case len(version.Schema.Raw) == 0:
			errs = append(errs, field.Required(at.Child("schema"), ""))
		case !isJSONObject(version.Schema.Raw):
			errs = append(errs, field.TypeInvalid(at.Child("schema"), string(version.Schema.Raw), "must be of type object"))
		}
		errs = append(errs, validateColumns(version.AdditionalPrinterColumns, at.Child("additionalPrinterColumns"))...)
		errs = append(errs, validateSelectableFields(version.SelectableFields, at.Child("selectableFields"))...)
		if scale := version.Subresources.Scale; scale != nil {
			errs = append(errs, registry.ValidateRequired(scale.SpecReplicasPath, at.Child("subresources", "scale", "specReplicasPath"))...)
			errs = append(errs, registry.ValidateRequired(scale.StatusReplicasPath, at.Child("subresources", "scale", "statusReplicasPath"))...)
		}
	}
	return append(errs, validateUnique(versions, func(version apisv1alpha1.APIResourceVersion) string { return version.Name }, path)...)
}

func validateColumns(columns []apiextensionsv1.CustomResourceColumnDefinition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := make([]string, len(columns))
	for i, column := range columns {
		at := path.Index(i)
		paths[i] = column.JSONPath
		errs = append(errs, registry.ValidateRequired(column.Name, at.Child("name"))...)
		errs = append(errs, registry.ValidateRequired(column.Type, at.Child("type"))...)
		errs = append(errs, registry.ValidateRequired(column.JSONPath, at.Child("jsonPath"))...)
	}
	errs = append(errs, crdpaths.Default.ValidateColumns(paths, crdpaths.Stored{}, path)...)
	return append(errs, validateUnique(columns, func(column apiextensionsv1.CustomResourceColumnDefinition) string { return column.Name }, path)...)
}

func validateSelectableFields(fields []apiextensionsv1.SelectableField, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := make([]string, len(fields))
	for i, selectable := range fields {
		paths[i] = selectable.JSONPath
		errs = append(errs, registry.ValidateRequired(selectable.JSONPath, path.Index(i).Child("jsonPath"))...)
	}
	return append(errs, crdpaths.Default.ValidateFields(paths, crdpaths.Stored{}, path)...)
}

func validateSchemaConversion(conversion apisv1alpha1.CustomResourceConversion, path *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(string(conversion.Strategy), path.Child("strategy"))
	errs = append(errs, registry.ValidateOneOf(conversion.Strategy, strategies, path.Child("strategy"))...)
	if (conversion.Strategy == apiextensionsv1.WebhookConverter) != (conversion.Webhook != nil) {
		errs = append(errs, field.Invalid(path, "", "webhook must be specified if strategy is Webhook, and only then"))
	}
	if webhook := conversion.Webhook; webhook != nil {
		at := path.Child("webhook")
		if webhook.ConversionReviewVersions == nil {
			errs = append(errs, field.Required(at.Child("conversionReviewVersions"), ""))
		}
		if client := webhook.ClientConfig; client != nil {
			errs = append(errs, registry.ValidateURI(client.URL, at.Child("clientConfig", "url"))...)
		}
	}
	return errs
}

func isJSONObject(raw []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(raw, &object) == nil && object != nil
}
