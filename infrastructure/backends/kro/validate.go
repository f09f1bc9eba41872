package kro

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubernetes-sigs/kro/pkg/graph/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/expression"
)

const (
	// maxResources bounds the resources of a Template; maxDimensions bounds the lists that a resource combines; maxCollection bounds the
	// objects that a resource creates or reads; maxObjects bounds the objects of an instance.
	maxResources, maxDimensions, maxCollection, maxObjects = 100, 3, 100, 500

	// ownNamespace is the expression for the namespace of the tenant.
	ownNamespace = "${schema.metadata.namespace}"
)

var (
	id = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

	// reserved are words that cannot be ids: those of CEL, and those that expressions use or may use in the future.
	reserved = sets.New(strings.Fields(`
		true false null in as break const continue else for function if import let loop package namespace return var void while
		apiVersion context dependency dependencies each externalRef externalReference externalRefs externalReferences graph instance item
		items kind kro metadata object resource resourcegraphdefinition resourceGraphDefinition resources root runtime schema self
		serviceAccountName spec status this variables vars version`)...)
)

// root returns the path of backendConfig.
func root() *field.Path { return field.NewPath("spec", "backendConfig") }

// validate validates everything that the compiler does not check.
func (c *config) validate(group string) field.ErrorList {
	var errs field.ErrorList
	at := root().Child("resources")
	if len(c.Resources) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(c.Resources) > maxResources {
		errs = append(errs, field.TooMany(at, len(c.Resources), maxResources))
	}
	ids := sets.New[string]()
	for i := range c.Resources {
		r := &c.Resources[i]
		errs = append(errs, validateName(r.ID, at.Index(i).Child("id"))...)
		if ids.Has(r.ID) {
			errs = append(errs, field.Duplicate(at.Index(i).Child("id"), r.ID))
		}
		ids.Insert(r.ID)
	}
	for i := range c.Resources {
		errs = append(errs, c.Resources[i].validate(at.Index(i), ids, group)...)
	}
	return append(errs, c.validateOutputs()...)
}

func (c *config) validateOutputs() field.ErrorList {
	var errs field.ErrorList
	if c.StatusMapping != nil && c.Status != nil {
		errs = append(errs, field.Forbidden(root().Child("status"), "is another name of statusMapping; set one of them"))
	}
	for _, outputs := range []struct {
		name   string
		values map[string]any
	}{{"statusMapping", c.StatusMapping}, {"status", c.Status}} {
		for _, output := range slices.Sorted(maps.Keys(outputs.values)) {
			if instance.IsCommonField(output) {
				errs = append(errs, field.Forbidden(root().Child(outputs.name).Key(output), "is a field of the platform"))
			}
			errs = append(errs, expression.ValidateKey(output, root().Child(outputs.name).Key(output))...)
			errs = append(errs, validateTexts(outputs.values[output], root().Child(outputs.name).Key(output))...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Connection)) {
		for _, problem := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(root().Child("connection").Key(key), key, problem))
		}
		errs = append(errs, validateText(c.Connection[key], root().Child("connection").Key(key))...)
	}
	return errs
}

// validateName validates an id or a variable.
func validateName(name string, at *field.Path) field.ErrorList {
	if !id.MatchString(name) {
		return field.ErrorList{field.Invalid(at, name, "must be a name in lowerCamelCase")}
	}
	if reserved.Has(name) {
		return field.ErrorList{field.Invalid(at, name, "is a reserved word")}
	}
	return nil
}

func (r *resource) validate(at *field.Path, ids sets.Set[string], group string) field.ErrorList {
	var errs field.ErrorList
	switch {
	case r.Template != nil && r.ExternalRef != nil:
		errs = append(errs, field.Forbidden(at.Child("externalRef"), "a resource has template or externalRef"))
	case r.Template != nil:
		errs = append(errs, validateTemplate(r.Template, at.Child("template"))...)
		errs = append(errs, validateTexts(r.Template, at.Child("template"))...)
		errs = append(errs, runtimecluster.ValidateTemplate(r.Template, group, at.Child("template"))...)
	case r.ExternalRef != nil:
		errs = append(errs, r.ExternalRef.validate(at.Child("externalRef"))...)
		if len(r.ForEach) > 0 {
			errs = append(errs, field.Forbidden(at.Child("forEach"), "cannot be combined with externalRef; select objects by their labels"))
		}
	default:
		errs = append(errs, field.Required(at.Child("template"), "a resource has template or externalRef"))
	}
	for i, condition := range r.ReadyWhen {
		errs = append(errs, validateExpression(condition, at.Child("readyWhen").Index(i))...)
	}
	for i, condition := range r.IncludeWhen {
		errs = append(errs, validateExpression(condition, at.Child("includeWhen").Index(i))...)
	}
	return append(errs, r.validateForEach(at.Child("forEach"), ids)...)
}

func validateTemplate(template map[string]any, at *field.Path) field.ErrorList {
	object := &unstructured.Unstructured{Object: template}
	var errs field.ErrorList
	if metadata, found := template["metadata"]; found {
		if _, ok := metadata.(map[string]any); !ok {
			return field.ErrorList{field.Invalid(at.Child("metadata"), metadata, "must be an object")}
		}
	}
	errs = append(errs, validateKind(object.GetAPIVersion(), object.GetKind(), at)...)
	if object.GetName() == "" {
		errs = append(errs, field.Required(at.Child("metadata", "name"), ""))
	}
	if object.GetGenerateName() != "" {
		errs = append(errs, field.Forbidden(at.Child("metadata", "generateName"), "objects are found by their names"))
	}
	namespace, found, err := unstructured.NestedString(template, "metadata", "namespace")
	if err != nil {
		return append(errs, field.Invalid(at.Child("metadata", "namespace"), nil, "must be a string"))
	}
	if found {
		errs = append(errs, validateNamespace(namespace, at.Child("metadata", "namespace"))...)
	}
	return errs
}

// validateKind requires a kind without expressions.
func validateKind(apiVersion, kind string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, value := range []struct{ name, text string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		switch {
		case value.text == "":
			errs = append(errs, field.Required(at.Child(value.name), ""))
		case strings.Contains(value.text, "${"):
			errs = append(errs, field.Invalid(at.Child(value.name), value.text, "cannot have expressions"))
		}
	}
	return errs
}

// validateNamespace refuses every namespace except that of the tenant, for which templates may use a placeholder.
func validateNamespace(namespace string, at *field.Path) field.ErrorList {
	switch namespace {
	case "", metav1.NamespaceDefault, ownNamespace:
		return nil
	}
	return field.ErrorList{field.Invalid(at, namespace, "objects are in the namespace of their tenant; leave it out")}
}

func (e *externalRef) validate(at *field.Path) field.ErrorList {
	errs := validateKind(e.APIVersion, e.Kind, at)
	errs = append(errs, validateNamespace(e.Metadata.Namespace, at.Child("metadata", "namespace"))...)
	if (e.Metadata.Name == "") == (e.Metadata.Selector == nil) {
		return append(errs, field.Invalid(at.Child("metadata"), nil, "must have either name or selector"))
	}
	if e.Metadata.Selector != nil {
		return append(errs, validateSelector(e.Metadata.Selector, at.Child("metadata", "selector"))...)
	}
	errs = append(errs, validateText(e.Metadata.Name, at.Child("metadata", "name"))...)
	named := map[string]any{"apiVersion": e.APIVersion, "kind": e.Kind, "metadata": map[string]any{"name": e.Metadata.Name}}
	return append(errs, runtimecluster.ValidateTemplate(named, "", at)...)
}

// validateSelector validates a selector as far as it does not depend on an instance.
func validateSelector(selector any, at *field.Path) field.ErrorList {
	if text, ok := selector.(string); ok {
		return validateExpression(text, at)
	}
	text, err := json.Marshal(selector)
	if err != nil {
		return field.ErrorList{field.Invalid(at, selector, err.Error())}
	}
	if errs := validateTexts(selector, at); len(errs) > 0 || strings.Contains(string(text), "${") {
		return errs // results of expressions are validated after evaluation
	}
	parsed := &metav1.LabelSelector{}
	if err := json.Unmarshal(text, parsed); err != nil {
		return field.ErrorList{field.Invalid(at, string(text), "must be a label selector")}
	}
	return metav1validation.ValidateLabelSelector(parsed, metav1validation.LabelSelectorValidationOptions{}, at)
}

// validateTexts validates the texts of a value.
func validateTexts(value any, at *field.Path) (errs field.ErrorList) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			errs = append(errs, expression.ValidateKey(key, at.Key(key))...)
			errs = append(errs, validateTexts(value[key], at.Child(key))...)
		}
	case []any:
		for i := range value {
			errs = append(errs, validateTexts(value[i], at.Index(i))...)
		}
	case string:
		return validateText(value, at)
	}
	return errs
}

// validateText requires that the compiler finds all expressions of a text. The compiler recognizes only strings in double quotes, and treats
// expressions that it does not find as text. So it must find the same expressions as a parser that recognizes all strings of CEL.
func validateText(text string, at *field.Path) field.ErrorList {
	parts, err := expression.Split(text)
	if err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	found, err := parser.ExtractExpressions(text)
	if err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	var expressions []string
	for _, part := range parts {
		if part.IsExpression {
			expressions = append(expressions, part.Text)
		}
	}
	if !slices.Equal(expressions, found) {
		return field.ErrorList{field.Invalid(at, text, "braces and double quotes within strings of an expression are supported in strings in double quotes only, where a double quote is written \\\"")}
	}
	return nil
}

// validateExpression requires that a text is one expression.
func validateExpression(text string, at *field.Path) field.ErrorList {
	if errs := validateText(text, at); len(errs) > 0 {
		return errs
	}
	if parts, err := expression.Split(text); err != nil || len(parts) != 1 || !parts[0].IsExpression {
		return field.ErrorList{field.Invalid(at, text, "must be one expression between ${ and }")}
	}
	return nil
}

func (r *resource) validateForEach(at *field.Path, ids sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	if len(r.ForEach) > maxDimensions {
		errs = append(errs, field.TooMany(at, len(r.ForEach), maxDimensions))
	}
	variables := sets.New[string]()
	for i, dimension := range r.ForEach {
		if len(dimension) != 1 {
			errs = append(errs, field.Invalid(at.Index(i), len(dimension), "must have one variable with its list"))
			continue
		}
		for name, list := range dimension {
			errs = append(errs, validateName(name, at.Index(i))...)
			if ids.Has(name) || variables.Has(name) {
				errs = append(errs, field.Duplicate(at.Index(i), name))
			}
			variables.Insert(name)
			errs = append(errs, validateExpression(list, at.Index(i).Child(name))...)
		}
	}
	return errs
}
