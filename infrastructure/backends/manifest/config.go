// Package manifest is a backend whose instances are objects in a runtime cluster, written as manifests with CEL expressions. It needs no
// other software, applies objects directly, and repairs drift.
package manifest

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/expression"
)

// config is backendConfig. Expressions are CEL between "${" and "}": the result of an expression replaces a value that consists of it, and
// is inserted as text into other values. Expressions can use self, which is the instance with metadata.name and spec. Conditions and outputs
// can also use other, which contains the objects by id.
type config struct {
	// Manifests are the objects, in the order in which they are applied.
	Manifests []manifest `json:"manifests"`
	// Outputs are fields of the status of instances.
	Outputs map[string]any `json:"outputs,omitempty"`
	// Connection contains values that the tenant gets in a Secret, such as credentials. Each value is a text.
	Connection map[string]string `json:"connection,omitempty"`
}

// manifest is one object.
type manifest struct {
	// ID is the name of the object in expressions.
	ID string `json:"id"`
	// Template is the object without namespace.
	Template map[string]any `json:"template"`
	// ReadyWhen are expressions, without "${" and "}", that are true when the object can be used.
	ReadyWhen []string `json:"readyWhen,omitempty"`
	// IncludeWhen is an expression that is true if the object should exist; empty means always.
	IncludeWhen string `json:"includeWhen,omitempty"`
}

var id = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// parseConfig parses and validates backendConfig. Errors name the field.
func parseConfig(t *infrastructurev1alpha1.Template) (*config, error) {
	parsed := &config{}
	if err := backend.DecodeConfig(t, "manifests", parsed); err != nil {
		return nil, err
	}
	return parsed, parsed.validate(field.NewPath("spec", "backendConfig"), t.Spec.InstanceCRD.Group).ToAggregate()
}

func (c *config) validate(path *field.Path, group string) field.ErrorList {
	var errs field.ErrorList
	if len(c.Manifests) == 0 {
		errs = append(errs, field.Required(path.Child("manifests"), ""))
	}
	ids := map[string]bool{}
	for i, m := range c.Manifests {
		at := path.Child("manifests").Index(i)
		if !id.MatchString(m.ID) {
			errs = append(errs, field.Invalid(at.Child("id"), m.ID, "must be a name in lowerCamelCase"))
		}
		if ids[m.ID] {
			errs = append(errs, field.Duplicate(at.Child("id"), m.ID))
		}
		ids[m.ID] = true
		errs = append(errs, m.validate(at, group)...)
	}
	for i, m := range c.Manifests {
		for n, condition := range m.ReadyWhen {
			selected, err := expression.SelectedCEL(condition, "other")
			errs = append(errs, checkIDs(ids, selected, err, path.Child("manifests").Index(i).Child("readyWhen").Index(n))...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Outputs)) {
		value, at := c.Outputs[name], path.Child("outputs").Key(name)
		errs = append(errs, expression.ValidateExpand(value, at)...)
		selected, err := expression.Selected(value, "other")
		errs = append(errs, checkIDs(ids, selected, err, at)...)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Connection)) {
		value, at := c.Connection[key], path.Child("connection").Key(key)
		for _, problem := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(at, key, problem))
		}
		errs = append(errs, expression.ValidateExpand(value, at)...)
		selected, err := expression.Selected(value, "other")
		errs = append(errs, checkIDs(ids, selected, err, at)...)
	}
	return errs
}

// checkIDs refuses expressions about objects that no instance can have: the instance would never be ready. It ignores expressions that do not
// compile, which other checks refuse.
func checkIDs(ids map[string]bool, selected []string, err error, at *field.Path) (errs field.ErrorList) {
	for _, name := range selected {
		if err == nil && !ids[name] {
			errs = append(errs, field.Invalid(at, "other."+name, "no manifest has this id"))
		}
	}
	return errs
}

func (m *manifest) validate(path *field.Path, group string) field.ErrorList {
	object := &unstructured.Unstructured{Object: m.Template}
	at := path.Child("template")
	var errs field.ErrorList
	for _, required := range []struct{ name, value string }{{"apiVersion", object.GetAPIVersion()}, {"kind", object.GetKind()}, {"metadata.name", object.GetName()}} {
		if required.value == "" {
			errs = append(errs, field.Required(at.Child(required.name), ""))
		}
	}
	if object.GetNamespace() != "" {
		errs = append(errs, field.Forbidden(at.Child("metadata", "namespace"), "objects are in the namespace of their tenant"))
	}
	errs = append(errs, expression.ValidateExpand(m.Template, at)...)
	errs = append(errs, runtimecluster.ValidateTemplate(m.Template, group, at)...)
	for i, condition := range m.ReadyWhen {
		errs = append(errs, expression.ValidateCEL(condition, path.Child("readyWhen").Index(i))...)
	}
	if m.IncludeWhen != "" {
		errs = append(errs, expression.ValidateCEL(m.IncludeWhen, path.Child("includeWhen"))...)
	}
	return errs
}
